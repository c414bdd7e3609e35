import { grouped } from '../format.ts';

/** The processes of an installation. `cli` is the command `penstock`, and `start` is `npm start`. */
export const processNames = ['web', 'worker', 'sync', 'board', 'release', 'cli', 'start'] as const;

export type ProcessName = (typeof processNames)[number];

interface Documented {
  /**
   * Documentation in whole sentences: what the setting does, what happens at the limit, and when to change
   * it.
   */
  description: string;
  /** A valid value other than the default. */
  example: string;
  /** The processes whose behaviour depends on the setting. */
  readBy: readonly ProcessName[];
  /** Instruction for a change of the setting, as an imperative sentence. Default: `RESTART`. */
  toChange?: string;
}

/** Instruction for an ordinary setting: each process reads its environment once, at its start. */
const RESTART = 'Restart the processes that read it.';

interface Rule {
  /** Regular expression for the whole value. */
  pattern: string;
  /** The rule that `pattern` checks, as a predicate for the name of the setting in an error message. */
  rule: string;
}

type TextSetting = Documented & { default?: string; enum?: readonly string[]; not?: object } & Partial<Rule>;

/** Defines a setting whose value is text. The members besides `readBy`, `toChange` and `example` are JSON Schema. */
export function text<const Setting extends TextSetting>(setting: Setting) {
  return { type: 'string' as const, unit: '', toChange: RESTART, ...setting, default: setting.default ?? '' };
}

type IntegerSetting = Documented & { default: number; minimum: number; maximum: number; unit: string };

/** Defines a setting whose value is a whole number. */
export function integer(setting: IntegerSetting) {
  return { type: 'integer' as const, toChange: RESTART, ...setting };
}

export function port(setting: Omit<IntegerSetting, 'minimum' | 'maximum' | 'unit'>) {
  return integer({ minimum: 0, maximum: 65_535, unit: 'port', ...setting });
}

/** A rule for secrets that are sent in a header. */
export function visibleAscii(minimum: number, maximum: number): Rule {
  const rule = `must be ${minimum} to ${grouped(maximum)} visible ASCII characters`;
  return { pattern: `^([!-~]{${minimum},${maximum}})?$`, rule };
}

/** The processes that run until they are stopped. */
export const servers = ['web', 'worker', 'sync', 'board'] as const;
