import { describe, expect, test } from 'vitest';
import { findSyntaxError } from '../../src/edge/json-position.ts';

describe('findSyntaxError', () => {
  test.each([
    ['{', { line: 1, column: 2 }],
    ['{"a":}', { line: 1, column: 6 }],
    ['{"a":1,}', { line: 1, column: 8 }],
    ['{}{}', { line: 1, column: 3 }],
    ['{"a":\n  tru}', { line: 2, column: 3 }],
    ['{"a":"x\ny"}', { line: 1, column: 8 }],
    ['{"a":"\\x"}', { line: 1, column: 7 }],
    ['{"a":01}', { line: 1, column: 7 }],
    ['[1,2', { line: 1, column: 5 }],
    ['{"events":[{},\n{"name":"é" "time":1}]}', { line: 2, column: 13, object: 'events[1]' }],
    ['{"a":[[1,2],[3,}]', { line: 1, column: 16, object: 'a[1]' }],
    ['{"Not plain":[}', { line: 1, column: 15 }],
  ])('finds the first error of %j', (text, position) => {
    expect(findSyntaxError(text)).toEqual(position);
  });

  test('agrees with JSON.parse about every change of one character', () => {
    const text = '{"a":[{"b":-1.5e+3,"c":"\\u00e9\\n"},true,[null,""]],"d":{}}';
    const changes = '{}[],:"\\01-+.eun \u0000';
    for (let at = 0; at < text.length; at++) {
      for (const put of ['', ...changes]) {
        const changed = text.slice(0, at) + put + text.slice(at + 1);
        let isJson = true;
        try {
          JSON.parse(changed);
        } catch {
          isJson = false;
        }
        expect({ changed, isJson: findSyntaxError(changed) === undefined }).toEqual({ changed, isJson });
      }
    }
  });
});
