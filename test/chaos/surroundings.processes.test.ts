import { wrongClocks } from '../../tools/chaos/scenarios/21-wrong-clocks.ts';
import { badNetwork } from '../../tools/chaos/scenarios/23-bad-network.ts';
import { soak } from '../../tools/chaos/scenarios/25-soak.ts';
import { otherRelease } from '../../tools/chaos/scenarios/26-other-release.ts';
import { shortForms } from './short-form.ts';

// Clocks, the network, time and another release.
shortForms('redis', [soak, otherRelease, wrongClocks, badNetwork]);
