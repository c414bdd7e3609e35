// The pages work without this: it remembers the theme, tells times in the reader's zone, and looks again.

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

/** A button that ends something for good waits until its word stands in the field; the server asks as well. */
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

/** Reads the page again, and puts what is new in the place of what was there. Not while somebody selects or types in it. */
function lookAgain() {
  const seconds = Number(document.querySelector('main[data-refresh]')?.dataset.refresh);
  if (!seconds) return;
  setInterval(async () => {
    const main = document.querySelector('main');
    const isBusy = main.contains(document.activeElement) && document.activeElement !== main;
    if (document.hidden || isBusy || !getSelection().isCollapsed) return;
    const answer = await fetch(location.href, { headers: { accept: 'text/html' } }).catch(() => undefined);
    if (!answer?.ok || answer.redirected) return;
    const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
    const fresh = page.querySelector('main');
    if (!fresh) return;
    tellTimes(fresh);
    main.replaceChildren(...fresh.childNodes);
  }, seconds * 1000);
}

document.addEventListener('DOMContentLoaded', () => {
  tellTimes(document);
  offerTheme();
  offerAll();
  guardWords();
  lookAgain();
});
