import { expect, test } from 'vitest';
import { quiet } from '../../src/board/pages/preference-centers.ts';

test('a preview keeps text and style, and disables attributes that navigate or load', () => {
  const kept = `<!doctype html><html><head><title>é • href="x"</title><style>p { color: "•" } a[href="x"] {}</style></head>
<body class="href" title='action="x"'><p>a href="x" &lt;b&gt;</p><!-- <a href="x"> --><img src="data:image/gif;base64,R0" alt=src>`;
  expect(quiet(kept)).toBe(kept);
  const changed: [before: string, after: string][] = [
    [
      '<link rel=stylesheet href="https://x.example/a.css">',
      '<link rel=stylesheet data-href="https://x.example/a.css">',
    ],
    [
      '<base href=/x><meta http-equiv="refresh" content="0;url=/">',
      '<base data-href=/x><meta data-http-equiv="refresh" content="0;url=/">',
    ],
    [
      "<A\nHREF = 'javascript:run()' ping=/x target=_top>",
      "<A\ndata-HREF = 'javascript:run()' data-ping=/x data-target=_top>",
    ],
    [
      '<form action="/x" method=post><button formaction=/x>',
      '<form data-action="/x" method=post><button data-formaction=/x>',
    ],
    [
      '<img src="/p.png" srcset="/q.png 2x"><video poster=/x>',
      '<img data-src="/p.png" data-srcset="/q.png 2x"><video data-poster=/x>',
    ],
    ['<svg><a xlink:href="/x"><image href=/x>', '<svg><a data-xlink:href="/x"><image data-href=/x>'],
    // Browsers parse a title inside an SVG as markup.
    ['<svg><title><a href="/x"></a></title></svg>', '<svg><title><a data-href="/x"></a></title></svg>'],
    ['<iframe src></iframe><object data=/x>', '<iframe data-src></iframe><object data-data=/x>'],
    ['<a b="1"href=/x>', '<a b="1"data-href=/x>'],
  ];
  for (const [before, after] of changed) expect(quiet(before)).toBe(after);
});

test('a preview of the largest and deepest template takes less than 4 s', () => {
  const before = process.cpuUsage();
  for (const page of [
    '<div>'.repeat(200_000),
    '<a href=x>'.repeat(100_000),
    '<a '.repeat(300_000),
    '<!--'.repeat(250_000),
  ])
    expect(quiet(page).length).toBeGreaterThanOrEqual(page.length);
  const { user } = process.cpuUsage(before);
  expect(user / 1e6).toBeLessThan(4);
});
