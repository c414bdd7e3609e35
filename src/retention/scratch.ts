import { scratchFolders } from '../platform/scratch.ts';

/** For files on their way into the archive, and out of it. */
export const { make: makeScratch, tidy: tidyScratch } = scratchFolders('retention');
