/** Detects files that end in .csv or .ndjson but have another format, and describes how to convert them. */

const SAVE = 'save it as "CSV UTF-8" and use that file';
const UNPACK = 'decompress it and use the file inside';

const SIGNATURES: readonly [bytes: Buffer, description: string][] = [
  [Buffer.from('d0cf11e0a1b11ae1', 'hex'), `an Excel workbook (.xls) or another Office document: ${SAVE}`],
  [Buffer.from('%PDF-'), 'a PDF document: export the data as CSV'],
  [Buffer.from('SQLite format 3\0'), 'an SQLite database: export its table as CSV'],
  [Buffer.from('ARROW1\0\0'), 'an Arrow file: write it as Parquet'],
  [Buffer.from('fd377a585a00', 'hex'), `compressed with xz: ${UNPACK}`],
  [Buffer.from('377abcaf271c', 'hex'), `a 7z archive: ${UNPACK}`],
  [Buffer.from('Rar!\x1a\x07', 'latin1'), `a RAR archive: ${UNPACK}`],
];
/** `BZh`, a digit, and the first bytes of a block. */
const BZIP2 = /^BZh[1-9]1AY&SY/;
const WEB_PAGE = /^(?:\ufeff)?\s*<(?:!doctype html|html[\s>])/i;
/** Offset of the word `ustar` in a tar archive. */
const TAR_AT = 257;

/** Describes a file of another format by its first bytes; undefined for bytes that may be CSV or NDJSON. */
export function foreignFormatOf(start: Buffer): string | undefined {
  for (const [bytes, description] of SIGNATURES)
    if (start.subarray(0, bytes.length).equals(bytes)) return description;
  if (start.toString('latin1', TAR_AT, TAR_AT + 5) === 'ustar') return `a tar archive: ${UNPACK}`;
  const text = start.toString('latin1', 0, 1000);
  if (BZIP2.test(text)) return `compressed with bzip2: ${UNPACK}`;
  if (WEB_PAGE.test(start.toString('utf8', 0, 1000)))
    return 'an HTML page, probably an error page of a server: download the file again';
  return undefined;
}

/** Describes a zip archive that is a document, by the names of its entries; undefined for any other archive. */
export function documentOf(entries: readonly string[]): string | undefined {
  if (entries.some((name) => name.startsWith('xl/'))) return `an Excel workbook: ${SAVE}`;
  if (entries.some((name) => name.startsWith('word/') || name.startsWith('ppt/')))
    return 'an Office document: export the data as CSV';
  if (entries.includes('mimetype') && entries.includes('content.xml')) return `an OpenDocument file: ${SAVE}`;
  return undefined;
}
