import type { Ending } from '../store/permission-sets.ts';
import { Refusal } from './refusal.ts';

/** @throws {Refusal} if the ending is not `done`; `words` replaces the default messages */
export function requireDone(ending: Ending, words: { taken?: string; used?: string }): void {
  if (ending === 'taken') throw new Refusal(words.taken ?? 'the name is taken', 'name', 409);
  if (ending === 'used') throw new Refusal(words.used ?? 'it is still in use', undefined, 409);
  if (ending === 'gone') throw new Refusal('it was deleted by someone else meanwhile', undefined, 409);
}
