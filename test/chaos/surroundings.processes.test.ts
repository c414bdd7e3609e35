import { wrongClocks } from '../../tools/chaos/scenarios/21-wrong-clocks.ts';
import { badNetwork } from '../../tools/chaos/scenarios/23-bad-network.ts';
import { soak } from '../../tools/chaos/scenarios/25-soak.ts';
import { otherRelease } from '../../tools/chaos/scenarios/26-other-release.ts';
import { isLong } from '../setup/length.ts';
import { shortForms } from './short-form.ts';

// Clocks, the network, time and another release.
// Memory that grows does not show within seconds: without it, a soak is the load of every other one.
shortForms('redis', [...(isLong ? [soak] : []), otherRelease, wrongClocks, badNetwork]);
