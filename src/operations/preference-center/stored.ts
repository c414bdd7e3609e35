import type { PreferenceCenter } from '../../generated/prisma/client.ts';
import { uuidOf } from '../../preferences/form-fields.ts';
import type { Json } from '../../profile/json.ts';

export type { PreferenceCenter };

/** The id in a path, in lower case; what is no UUID names nothing. */
export function centerIdOf(params: Record<string, string>): string | undefined {
  return uuidOf(params.preferenceCenterExternalId ?? '');
}

/** What every answer about one center begins with. */
export function stampsOf({
  id,
  createdAt,
  updatedAt,
}: Pick<PreferenceCenter, 'id' | 'createdAt' | 'updatedAt'>): Record<string, Json> {
  return {
    preference_center_api_id: id,
    created_at: createdAt.toISOString(),
    updated_at: updatedAt.toISOString(),
  };
}

export function createdBody(center: PreferenceCenter): Record<string, Json> {
  const liquid_tag = `{{preference_center.\${${center.name}}}}`;
  return { ...stampsOf(center), liquid_tag, message: 'success' };
}

export function updatedBody(center: PreferenceCenter): Record<string, Json> {
  return { ...stampsOf(center), message: 'success' };
}
