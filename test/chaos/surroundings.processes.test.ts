import { wrongClocks } from '../../tools/chaos/scenarios/21-wrong-clocks.ts';
import { badNetwork } from '../../tools/chaos/scenarios/23-bad-network.ts';
import { soak } from '../../tools/chaos/scenarios/25-soak.ts';
import { otherRelease } from '../../tools/chaos/scenarios/26-other-release.ts';
import { oneWayPartition } from '../../tools/chaos/scenarios/34-one-way-partition.ts';
import { isLong } from '../setup/length.ts';
import { shortForms } from './short-form.ts';

// Faults of clocks, network and releases. A memory leak does not show within seconds, so a short soak would
// only repeat the
// load of the other scenarios.
shortForms('redis', [...(isLong ? [soak] : []), otherRelease, wrongClocks, badNetwork, oneWayPartition]);
