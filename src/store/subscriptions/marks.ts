/** What is known of an address or a user besides subscription states, as the history of states names it. */
export const marks = {
  /** Of an email address. */
  hard_bounce: 'hard_bounced',
  /** Of a profile. */
  spam: 'marked_as_spam',
} as const;

export type Mark = keyof typeof marks;
