import { escapeHtml } from '../escape-html.ts';

/** What a visitor is told instead of the page: nothing about why, and what to do. */
const notices = {
  unknown: {
    status: 404,
    title: 'This link does not work',
    text: 'Please open it again from your message. It may have been copied without its end.',
  },
  over: {
    status: 410,
    title: 'This link is no longer valid',
    text: 'Please use the link in our latest message to you.',
  },
  unreadable: {
    status: 400,
    title: 'Your choices could not be read',
    text: 'Nothing has been changed. Please go back, and tell us if it happens again.',
  },
  busy: {
    status: 503,
    title: 'Please try again in a moment',
    text: 'We are busy right now, and nothing has been changed. Reloading this page tries again.',
  },
  broken: {
    status: 500,
    title: 'This page cannot be shown',
    text: 'The mistake is ours, and we have noted it. Please try again later.',
  },
  saved: { status: 200, title: 'Saved', text: 'Your choices have been saved.' },
} as const;

export type NoticeName = keyof typeof notices;

export function statusOfNotice(name: NoticeName): number {
  return notices[name].status;
}

/** A whole page. */
export function noticePage(name: NoticeName): string {
  const { title, text } = notices[name];
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escapeHtml(title)}</title>
<style>
body { font: 1rem/1.5 system-ui, sans-serif; color: #1d2733; background: #eef2f5; margin: 0; padding: 0 1rem; }
main { max-width: 30rem; margin: 3rem auto; padding: 2rem clamp(1.25rem, 6vw, 2.5rem); background: #fff;
  border-radius: 12px; }
h1 { margin: 0; font-size: 1.5rem; line-height: 1.3; }
p { margin: 1rem 0 0; }
</style>
</head>
<body>
<main>
<h1>${escapeHtml(title)}</h1>
<p>${escapeHtml(text)}</p>
</main>
</body>
</html>
`;
}
