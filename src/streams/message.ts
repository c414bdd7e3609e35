/** What of a message has its own member in the envelope. */
export const messageTypes = {
  e: 'event',
  p: 'purchase',
  a: 'attributes',
  s: 'subscription',
  i: 'identity',
} as const;
export type MessageType = (typeof messageTypes)[keyof typeof messageTypes];

/** Something that took effect, on its way to a destination. */
export interface Message {
  /** A UUID: the same each time it is delivered. */
  id: string;
  type: MessageType;
  /** ISO 8601: when it took effect. */
  time: string;
  workspaceId: string;
  /** What is about one user has one key, and keeps its order: the service id, or the address. */
  key: string;
  user: { service_id: string; external_id: string | null } | null;
  /** JSON. */
  data: string;
}

/** The envelope as JSON: `{id, type, time, workspace_id, user, data}`. `field` is the wire name of the service id. */
export function envelopeOf({ id, type, time, workspaceId, user, data }: Message, field: string): string {
  // Ids, types and times have nothing that is escaped in JSON.
  const who = user
    ? `{"${field}":"${user.service_id}","external_id":${JSON.stringify(user.external_id)}}`
    : 'null';
  return `{"id":"${id}","type":"${type}","time":"${time}","workspace_id":"${workspaceId}","user":${who},"data":${data}}`;
}
