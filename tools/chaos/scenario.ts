import type { Backend } from '../../test/setup/fleet.ts';
import type { Scene } from './scene.ts';

/** A scenario for one fault. */
export interface Scenario {
  /** Number in the list of faults. */
  number: number;
  fault: string;
  /** The forms of the queue that it applies to. */
  backends: readonly Backend[];
  /** Returns why it cannot run on this machine; undefined if it can. */
  impossible?(): string | undefined;
  /**
   * Whether its fleet cannot be used by another scenario, because clocks are wrong or an unconfirmed loss
   * remains.
   */
  spoils?: true;
  run(scene: Scene): Promise<void>;
}
