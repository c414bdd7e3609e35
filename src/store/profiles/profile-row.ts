/** What the appliers need to know of a stored profile, whichever identifier found it. */
export interface ProfileRow {
  workspaceId: string;
  id: string;
  externalId: string | null;
  email: string | null;
  phone: string | null;
  phoneValid: boolean | null;
}

/** The select list of a ProfileRow, for a table aliased `profiles`. */
export const profileColumns = `
    profiles.workspace_id as "workspaceId",
    profiles.id,
    profiles.external_id as "externalId",
    profiles.email,
    profiles.phone,
    profiles.phone_valid as "phoneValid"`;
