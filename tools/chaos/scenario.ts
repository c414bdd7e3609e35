import type { Backend } from '../../test/setup/fleet.ts';
import type { Scene } from './scene.ts';

/** One fault. */
export interface Scenario {
  /** Its number in the list of faults. */
  number: number;
  fault: string;
  /** The forms of the queue for which it makes sense. */
  backends: readonly Backend[];
  /** Why it cannot be run on this machine, if so. */
  impossible?(): string | undefined;
  /** Its fleet is no place for another scenario afterwards: clocks are wrong, or a loss stands there to be confirmed. */
  spoils?: true;
  run(scene: Scene): Promise<void>;
}
