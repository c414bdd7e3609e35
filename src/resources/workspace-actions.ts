import { normalizePhone } from '../profile/addresses.ts';
import { setPolicy } from '../store/archive-files.ts';
import { type AuditEntry, audited, auditedByPrisma } from '../store/audit.ts';
import { type InvalidReason, invalidReasons, markInvalidNumbers } from '../store/suppression-lists.ts';
import { choice, listOf, text, withDefault } from './fields.ts';
import { InvalidValue } from './refusal.ts';
import { type Context, creation, type Outcome, type Owner } from './resource.ts';

const MAX_MONTHS = 1200;

/** Months of a retention. Null: events are kept indefinitely. Undefined: RETENTION_MONTHS applies. */
type Months = { months: number | null | undefined };

function readMonths(given: string): Months {
  if (given === 'forever') return { months: null };
  if (given === 'default') return { months: undefined };
  const months = /^\d{1,4}$/.test(given) ? Number(given) : 0;
  if (months < 1 || months > MAX_MONTHS)
    throw new InvalidValue(`Must be 1 to ${MAX_MONTHS}, forever or default (it is '${given.slice(0, 80)}').`);
  return { months };
}

/** Sets the retention of a workspace: `penstock retention set`, and a form on the page of the workspace. */
export const setRetention = creation({
  verb: 'set',
  button: 'Set retention',
  sentence: 'Set how many months a workspace keeps.',
  example: 'retention set --workspace default --months 24',
  permit: 'operator',
  lead: 'Events and purchases of older months are archived to ARCHIVE_URL and dropped by the daily run.',
  done: 'Retention set. The next daily run applies it.',
  scope: 'workspace',
  fields: {
    months: text(
      {
        label: 'Months',
        help: 'a number of months, forever, or default (the value of RETENTION_MONTHS)',
        value: 'months',
      },
      readMonths,
    ),
  },
  async run({ database, actor }, { owner, values }): Promise<Outcome<never>> {
    const { id, name } = owner;
    const { months } = values.months;
    const kept = months === undefined ? 'default' : (months ?? 'forever');
    await auditedByPrisma(database.prisma, actor, async (tx) => {
      await setPolicy(tx, id, months);
      const subject = { kind: 'workspace', id };
      const entry: AuditEntry = {
        action: 'retention.set',
        subject,
        workspaceId: id,
        detail: { months: kept },
      };
      return { result: undefined, entries: [entry] };
    });
    return { row: { workspace: name, months: kept } };
  },
});

/** Maximum number of phone numbers in the form. */
const MAX_PHONES = 500;

export function readPhone(given: string): string {
  const read = normalizePhone(given);
  if (!read?.valid) throw new InvalidValue('Must be a phone number in E.164, for example +14155552671.');
  return read.phone;
}

function readPhones(given: string): string[] {
  const phones = listOf(given);
  if (phones.length > MAX_PHONES) throw new InvalidValue(`Must have at most ${MAX_PHONES} phone numbers.`);
  return phones.map((phone, index) => {
    try {
      return readPhone(phone);
    } catch (error) {
      if (!(error instanceof InvalidValue)) throw error;
      throw new InvalidValue(`Phone number ${index + 1}: ${error.message}`);
    }
  });
}

/** Adds phone numbers to the list of numbers that no message reaches. */
export async function markInvalid(
  { database, actor }: Pick<Context, 'database' | 'actor'>,
  { id: workspaceId }: Pick<Owner, 'id'>,
  { phones, reason }: { phones: string[]; reason: InvalidReason },
): Promise<void> {
  await audited(database.pool, actor, async (tx) => {
    await markInvalidNumbers(tx, workspaceId, { phones, reason });
    const subject = { kind: 'workspace', id: workspaceId };
    const detail = { reason, numbers: phones.length };
    return {
      result: undefined,
      entries: [{ action: 'phone_numbers.mark_invalid', subject, workspaceId, detail }],
    };
  });
}

/** The form on the page of a workspace that does what `penstock phone-numbers mark-invalid` does. */
export const markNumbers = creation({
  verb: 'mark-invalid',
  button: 'Mark phone numbers invalid',
  sentence: 'Add phone numbers to the list that GET /sms/invalid_phone_numbers returns.',
  example: 'phone-numbers mark-invalid +14155552671 --workspace default --reason deactivated',
  permit: ['users', 'pii', 'change'],
  lead: 'Adds phone numbers to the list that GET /sms/invalid_phone_numbers returns.',
  done: 'The phone numbers are in the list of invalid numbers.',
  fields: {
    phones: text(
      { label: 'Phone numbers', help: 'numbers in E.164, separated by commas', value: 'list' },
      readPhones,
      { maxLength: 20 * MAX_PHONES, placeholder: '+14155552671' },
    ),
    reason: withDefault(
      choice({ label: 'Reason', help: 'reason, as the list shows it' }, invalidReasons),
      'provider_error',
    ),
  },
  async run(context, { owner, values }): Promise<Outcome<never>> {
    const { phones, reason } = values;
    await markInvalid(context, owner, { phones, reason });
    return { row: { workspace: owner.name, reason, marked: new Set(phones).size } };
  },
});
