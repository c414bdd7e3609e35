import { oneKey } from '../../tools/chaos/scenarios/11-one-key.ts';
import { hostileNames, hostileShapes } from '../../tools/chaos/scenarios/15-hostile-values.ts';
import { largeBodies } from '../../tools/chaos/scenarios/19-large-bodies.ts';
import { slowSockets } from '../../tools/chaos/scenarios/20-slow-sockets.ts';
import { sharedLimit } from '../../tools/chaos/scenarios/22-shared-limit.ts';
import { overload } from '../../tools/chaos/scenarios/32-overload.ts';
import { isLong } from '../setup/length.ts';
import { shortForms } from './short-form.ts';

/**
 * test/contract/bodies, test/edge/hardening and test/security/held-connections cover these faults without
 * other load.
 */
const tooMuch = isLong ? [largeBodies, slowSockets] : [];

// Clients send too much, too often, or too slowly.
shortForms('redis', [hostileShapes, hostileNames, ...tooMuch, oneKey, sharedLimit, overload]);
