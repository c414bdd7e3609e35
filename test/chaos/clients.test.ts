import { hostileNames, hostileShapes } from './scenarios/15-hostile-values.ts';
import { largeBodies } from './scenarios/19-large-bodies.ts';
import { slowSockets } from './scenarios/20-slow-sockets.ts';
import { wrongClocks } from './scenarios/21-wrong-clocks.ts';
import { sharedLimit } from './scenarios/22-shared-limit.ts';
import { badNetwork } from './scenarios/23-bad-network.ts';
import { soak } from './scenarios/25-soak.ts';
import { otherRelease } from './scenarios/26-other-release.ts';
import { shortForm } from './short-form.ts';

shortForm(hostileShapes);
shortForm(hostileNames);
shortForm(largeBodies);
shortForm(slowSockets);
shortForm(wrongClocks, ['redis']);
shortForm(sharedLimit);
shortForm(badNetwork);
shortForm(soak, ['redis']);
shortForm(otherRelease, ['redis']);
