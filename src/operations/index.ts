import type { Operation } from './operation.ts';
import { usersExportIds } from './users.export.ids.ts';
import { usersTrack } from './users.track.ts';

/**
 * Every endpoint, in the order of the specification.
 *
 * @param serviceIdField wire name of the service id
 */
export function allOperations(serviceIdField: string): Operation[] {
  return [usersTrack(serviceIdField), usersExportIds(serviceIdField)];
}
