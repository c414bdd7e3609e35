// Enhances pages that also work without it: remembers the theme, shows times in the reader's time zone, and refreshes.

const root = document.documentElement;
const kept = localStorage.getItem('penstock-theme');
if (kept === 'dark' || kept === 'light') root.dataset.theme = kept;

const zoned = new Intl.DateTimeFormat(undefined, {
  year: 'numeric',
  month: 'short',
  day: 'numeric',
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
  timeZoneName: 'short',
});
const dated = new Intl.DateTimeFormat(undefined, { year: 'numeric', month: 'short', day: 'numeric' });
const relative = new Intl.RelativeTimeFormat('en', { numeric: 'auto', style: 'short' });

/** Units of a relative time with their seconds, largest first. Older times are shown as a date. */
const UNITS = [
  ['day', 86_400],
  ['hour', 3600],
  ['minute', 60],
];
const MAX_RELATIVE_DAYS = 30;

/** Formats the distance of a time to now, for example `5 min. ago`. */
function distance(at) {
  const seconds = (at - Date.now()) / 1000;
  if (Math.abs(seconds) > MAX_RELATIVE_DAYS * 86_400) return dated.format(at);
  for (const [unit, size] of UNITS)
    if (Math.abs(seconds) >= size) return relative.format(Math.trunc(seconds / size), unit);
  return seconds > 0 ? 'in less than a minute' : 'just now';
}

/** Formats of the x axis of charts. */
const axes = {
  time: new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' }),
  day: new Intl.DateTimeFormat(undefined, { month: 'short', day: 'numeric' }),
};

/** Shows times as distances, or in full if the reader has chosen that. The title has the full time in both zones. */
function tellTimes(within) {
  const isFull = localStorage.getItem('penstock-times') === 'full';
  for (const time of within.querySelectorAll('time[datetime]')) {
    const at = new Date(time.dateTime);
    const local = zoned.format(at);
    const utc = `${time.dateTime.slice(0, 10)} ${time.dateTime.slice(11, 19)} UTC`;
    time.title = `${local} (${utc})${time.dataset.title ?? ''}`;
    const axis = axes[time.dataset.axis];
    const text = axis ? axis.format(at) : isFull || time.hasAttribute('data-full') ? local : distance(at);
    if (time.textContent !== text) time.textContent = text;
  }
  for (const zone of within.querySelectorAll('[data-zone]'))
    zone.textContent = Intl.DateTimeFormat().resolvedOptions().timeZone;
}

const RETELL_MS = 30_000;

function offerFullTimes() {
  setInterval(() => document.hidden || isMarked(document.body) || tellTimes(document), RETELL_MS);
  const button = document.querySelector('[data-times-toggle]');
  if (!button) return;
  button.hidden = false;
  button.addEventListener('click', () => {
    const isFull = localStorage.getItem('penstock-times') === 'full';
    localStorage.setItem('penstock-times', isFull ? 'relative' : 'full');
    tellTimes(document);
  });
}

/** Adds a button to each element with `data-copy` that copies this text. Without a secure context, there is no clipboard. */
function offerCopies(within) {
  if (!navigator.clipboard) return;
  for (const id of within.querySelectorAll('[data-copy]')) {
    const button = document.createElement('button');
    button.type = 'button';
    button.className = 'copy';
    button.textContent = 'Copy';
    button.setAttribute('aria-label', `Copy ${id.dataset.copyName ?? id.dataset.copy}`);
    id.append(button);
  }
}

function copyIds() {
  document.addEventListener('click', async ({ target }) => {
    const button = target.closest?.('button.copy');
    if (!button) return;
    await navigator.clipboard.writeText(button.parentElement.dataset.copy);
    button.textContent = 'Copied';
    setTimeout(() => {
      button.textContent = 'Copy';
    }, 2000);
  });
}

/** Completes a part of a page that the server has rendered. */
function complete(part) {
  tellTimes(part);
  offerCopies(part);
}

function offerTheme() {
  const button = document.querySelector('[data-theme-toggle]');
  if (!button) return;
  button.hidden = false;
  button.addEventListener('click', () => {
    const isDark = root.dataset.theme
      ? root.dataset.theme === 'dark'
      : matchMedia('(prefers-color-scheme: dark)').matches;
    root.dataset.theme = isDark ? 'light' : 'dark';
    localStorage.setItem('penstock-theme', root.dataset.theme);
  });
}

function offerAll() {
  for (const all of document.querySelectorAll('[data-check-all]')) {
    all.hidden = false;
    const boxes = all.closest('form').querySelectorAll('input[type=checkbox][name=id]');
    all.addEventListener('click', () => {
      const isFull = [...boxes].every((box) => box.checked);
      for (const box of boxes) box.checked = !isFull;
    });
  }
}

/** Disables the button of an irreversible action until the word is typed. The server checks the word as well. */
function guardWords() {
  for (const field of document.querySelectorAll('[data-word]')) {
    const button = field.form.querySelector('button');
    const words = [field.dataset.word, ...(field.dataset.also ?? '').split('\n')].filter(Boolean);
    const look = () => {
      button.disabled = !words.includes(field.value.trim());
    };
    field.addEventListener('input', look);
    look();
  }
}

/** Updates a part in place, so that focus, selection, scroll position and open details are kept. */
function renew(there, fresh) {
  const [before, after] = [[...there.childNodes], [...fresh.childNodes]];
  for (const [index, node] of after.entries()) {
    const old = before[index];
    if (!old) there.append(node);
    else if (old.nodeName !== node.nodeName) old.replaceWith(node);
    else if (node.nodeType !== Node.ELEMENT_NODE) {
      if (old.nodeValue !== node.nodeValue) old.nodeValue = node.nodeValue;
    } else {
      for (const { name } of [...old.attributes])
        if (name !== 'open' && !node.hasAttribute(name)) old.removeAttribute(name);
      for (const { name, value } of node.attributes)
        if (name !== 'open' && old.getAttribute(name) !== value) old.setAttribute(name, value);
      renew(old, node);
    }
  }
  for (const node of before.slice(after.length)) node.remove();
}

/** Whether the user has selected text in the element, for example to copy it. */
const isMarked = (place) => !getSelection().isCollapsed && getSelection().containsNode(place, true);

/**
 * Reloads the page periodically and updates its content, except while the user types or selects text. It ends with the
 * first answer that asks for no further reload.
 */
function lookAgain() {
  const seconds = Number(document.querySelector('main[data-refresh]')?.dataset.refresh);
  if (!seconds) return;
  const timer = setInterval(async () => {
    const main = document.querySelector('main');
    const isBusy = document.activeElement?.matches('input, select, textarea') || isMarked(main);
    if (document.hidden || isBusy) return;
    const answer = await fetch(location.href, { headers: { accept: 'text/html' } }).catch(() => undefined);
    // The page has moved, ended or is no longer permitted. After another failure, the next reload may succeed.
    if (answer?.redirected || [401, 403, 404].includes(answer?.status)) clearInterval(timer);
    if (!answer?.ok || answer.redirected) return;
    const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
    const fresh = page.querySelector('main');
    if (!fresh) return;
    if (!fresh.dataset.refresh) clearInterval(timer);
    complete(fresh);
    renew(main, fresh);
  }, seconds * 1000);
}

/**
 * Milliseconds after a connection error until a page says that it is not live, and until it retries a rejected stream.
 */
const SAY_AFTER = 6000;
const ASK_AGAIN_AFTER = 30_000;

/** Updates the live parts of the page from server-sent events while the page is visible. */
function stayLive() {
  const head = document.querySelector('[data-live-from]');
  if (!head) return;
  const state = head.querySelector('[data-live-state]');
  const held = new Map();
  let source;
  let timers = [];

  const later = (work, milliseconds) => timers.push(setTimeout(work, milliseconds));
  function close() {
    source?.close();
    source = undefined;
    for (const timer of timers) clearTimeout(timer);
    timers = [];
  }
  function say(text) {
    state.textContent = text;
  }
  function show({ data }) {
    for (const [name, text] of Object.entries(JSON.parse(data))) held.set(name, text);
    for (const [name, text] of held) {
      const place = document.querySelector(`[data-live="${name}"]`);
      if (place && isMarked(place)) continue;
      held.delete(name);
      if (!place) continue;
      const fresh = document.createElement('template');
      fresh.innerHTML = text;
      complete(fresh.content);
      renew(place, fresh.content);
    }
  }
  function open() {
    if (source || document.hidden) return;
    source = new EventSource(head.dataset.liveFrom);
    source.addEventListener('open', () => {
      for (const timer of timers) clearTimeout(timer);
      timers = [];
      say('· live');
    });
    source.addEventListener('parts', show);
    source.addEventListener('end', () => {
      close();
      document.removeEventListener('visibilitychange', look);
      say('· not live any more: sign in again');
    });
    source.addEventListener('error', () => {
      later(() => say('· not live at this moment'), SAY_AFTER);
      if (source.readyState !== EventSource.CLOSED) return;
      later(() => {
        close();
        open();
      }, ASK_AGAIN_AFTER);
    });
  }
  function look() {
    if (document.hidden) close();
    else open();
  }
  document.addEventListener('visibilitychange', look);
  open();
}

const minutes = new Intl.DateTimeFormat(undefined, {
  month: 'short',
  day: 'numeric',
  hour: '2-digit',
  minute: '2-digit',
});

/** Shows the values at the pointer. A table has the same values for other users. */
function tellPoints() {
  let told;
  document.addEventListener('pointermove', ({ target, clientX }) => {
    const chart = target.closest?.('[data-chart-step]');
    if (told && told !== chart) told.querySelector('[data-point]').textContent = '';
    told = chart;
    if (!chart) return;
    const box = chart.querySelector('svg').getBoundingClientRect();
    const lines = [...chart.querySelectorAll('[data-values]')].map((line) => line.dataset.values.split('|'));
    const index = Math.floor(((clientX - box.left) / box.width) * lines[0].length);
    if (index < 0 || index >= lines[0].length) return;
    const at = new Date(Number(chart.dataset.chartFrom) + index * 1000 * Number(chart.dataset.chartStep));
    const values = lines.map((line) => line[index] || 'not known').join(' · ');
    chart.querySelector('[data-point]').textContent = `${minutes.format(at)}: ${values}`;
  });
}

/** Milliseconds without a key after which the palette searches. */
const SEARCH_AFTER = 150;

/** Offers the search as a dialog: it opens with `/` or Ctrl+K, and the arrow keys move through its results. */
function offerPalette() {
  const opener = document.querySelector('[data-palette]');
  if (!opener) return;
  const dialog = document.createElement('dialog');
  dialog.className = 'palette';
  dialog.setAttribute('aria-label', 'Search');
  dialog.innerHTML = `<form method="get" action="/search" role="search"><label>Page, user, request id, key or name
<input type="search" name="q" maxlength="320" autocomplete="off"></label></form><div class="found"></div>`;
  document.body.append(dialog);
  const input = dialog.querySelector('input');
  const found = dialog.querySelector('.found');
  let timer;
  let asked;

  async function search() {
    asked?.abort();
    asked = new AbortController();
    const query = input.value.trim();
    if (query === '') return found.replaceChildren();
    const from = `/search?${new URLSearchParams({ q: query })}`;
    const answer = await fetch(from, { headers: { accept: 'text/html' }, signal: asked.signal }).catch(
      () => undefined,
    );
    if (!answer?.ok || answer.redirected) return;
    const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
    if (query !== input.value.trim()) return;
    found.dataset.query = query;
    found.replaceChildren(...page.querySelector('#found').childNodes);
  }
  function open() {
    if (document.querySelector(':popover-open')) document.querySelector(':popover-open').hidePopover();
    if (!dialog.open) dialog.showModal();
    input.select();
  }
  opener.addEventListener('click', (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    open();
  });
  document.addEventListener('keydown', (event) => {
    const isShortcut = event.key.toLowerCase() === 'k' && (event.ctrlKey || event.metaKey) && !event.altKey;
    const isTyping = event.target.matches?.('input, select, textarea, [contenteditable]');
    const isSlash = event.key === '/' && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey;
    if (!isShortcut && !isSlash) return;
    event.preventDefault();
    open();
  });
  input.addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(search, SEARCH_AFTER);
  });
  // Enter opens the first result. Without results for the text yet, the form opens the search page.
  dialog.querySelector('form').addEventListener('submit', (event) => {
    const first = found.querySelector('a');
    if (!first || found.dataset.query !== input.value.trim()) return;
    event.preventDefault();
    location.assign(first.href);
  });
  dialog.addEventListener('keydown', (event) => {
    if (event.key !== 'ArrowDown' && event.key !== 'ArrowUp') return;
    const stops = [input, ...found.querySelectorAll('a')];
    const next = stops.indexOf(document.activeElement) + (event.key === 'ArrowDown' ? 1 : -1);
    event.preventDefault();
    stops[Math.min(Math.max(next, 0), stops.length - 1)].focus();
  });
  // The backdrop belongs to the dialog.
  dialog.addEventListener('click', ({ target }) => target === dialog && dialog.close());
}

/** Scrolls the menu to the current page if the window is too low for the whole menu. */
function showPresentPage() {
  document.querySelector('.side nav [aria-current]')?.scrollIntoView({ block: 'nearest' });
}

document.addEventListener('DOMContentLoaded', () => {
  offerPalette();
  complete(document);
  copyIds();
  offerFullTimes();
  offerTheme();
  offerAll();
  guardWords();
  lookAgain();
  stayLive();
  tellPoints();
  showPresentPage();
});
