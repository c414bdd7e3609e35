import { wrongClocks } from '../../tools/chaos/scenarios/21-wrong-clocks.ts';
import { badNetwork } from '../../tools/chaos/scenarios/23-bad-network.ts';
import { soak } from '../../tools/chaos/scenarios/25-soak.ts';
import { otherRelease } from '../../tools/chaos/scenarios/26-other-release.ts';
import { shortForm } from './short-form.ts';

// Clocks, the network, time and another release.
shortForm(wrongClocks, ['redis']);
shortForm(badNetwork, ['redis']);
shortForm(soak, ['redis']);
shortForm(otherRelease, ['redis']);
