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
});

function tellTimes(within) {
  for (const time of within.querySelectorAll('time[datetime]'))
    time.textContent = zoned.format(new Date(time.dateTime));
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
    const look = () => {
      button.disabled = field.value.trim() !== field.dataset.word;
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

/** Reloads the page periodically and updates its content, except while the user types or selects text. */
function lookAgain() {
  const seconds = Number(document.querySelector('main[data-refresh]')?.dataset.refresh);
  if (!seconds) return;
  setInterval(async () => {
    const main = document.querySelector('main');
    const isBusy = document.activeElement?.matches('input, select, textarea') || isMarked(main);
    if (document.hidden || isBusy) return;
    const answer = await fetch(location.href, { headers: { accept: 'text/html' } }).catch(() => undefined);
    if (!answer?.ok || answer.redirected) return;
    const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
    const fresh = page.querySelector('main');
    if (!fresh) return;
    tellTimes(fresh);
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
      tellTimes(fresh.content);
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

document.addEventListener('DOMContentLoaded', () => {
  tellTimes(document);
  offerTheme();
  offerAll();
  guardWords();
  lookAgain();
  stayLive();
  tellPoints();
});
