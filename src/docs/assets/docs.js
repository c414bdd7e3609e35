// The pages work without this script. It updates results while the reader types, remembers the language of the samples, and sends
// sample requests.

const LANGUAGE = 'penstock-language';
const PAUSE_MS = 150;
const MAX_SHOWN = 100_000;

/** Updates the results while the reader types in the search field, or changes a field of the calculator. */
function updateLive() {
  const form = document.querySelector('form[data-calculator]') ?? document.querySelector('form[role=search]');
  const results = document.querySelector('[data-results]');
  if (!results) return;
  let timer;
  let last;
  form.addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      last?.abort();
      last = new AbortController();
      const address = `${form.getAttribute('action')}?${new URLSearchParams(new FormData(form))}`;
      const answer = await fetch(address, { signal: last.signal }).catch(() => undefined);
      if (!answer?.ok) return;
      const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
      results.replaceChildren(...page.querySelector('[data-results]').childNodes);
      history.replaceState(null, '', address);
    }, PAUSE_MS);
  });
}

function keepLanguage() {
  const kept = localStorage.getItem(LANGUAGE);
  for (const choice of document.querySelectorAll('input[name=language]')) {
    if (choice.value === kept) choice.checked = true;
    choice.addEventListener('change', () => localStorage.setItem(LANGUAGE, choice.value));
  }
}

/** Returns the URL for the values of the fields. Undefined if a part of the path is empty. */
function addressOf(section, fields) {
  const query = new URLSearchParams();
  let path = section.dataset.route;
  for (const { dataset, value } of fields) {
    if (dataset.in === 'path') {
      if (!value) return undefined;
      path = path.replace(`{${dataset.name}}`, encodeURIComponent(value));
    }
    if (dataset.in === 'query' && value) query.set(dataset.name, value);
  }
  return query.size > 0 ? `${path}?${query}` : path;
}

function offerTrial() {
  const section = document.querySelector('[data-trial]');
  if (!section) return;
  section.hidden = false;
  const [key, body, button, status, answer] = ['key', 'body', 'send', 'status', 'answer'].map((part) =>
    section.querySelector(`[data-${part}]`),
  );
  const fields = [...section.querySelectorAll('[data-in]')];
  button.addEventListener('click', async () => {
    const address = addressOf(section, fields);
    answer.hidden = true;
    if (address === undefined) {
      status.textContent = 'A part of the path is empty.';
      return;
    }
    const headers = { Authorization: `Bearer ${key.value}` };
    if (section.dataset.type) headers['Content-Type'] = section.dataset.type;
    for (const { dataset, value } of fields)
      if (dataset.in === 'header' && value) headers[dataset.name] = value;
    button.disabled = true;
    try {
      const response = await fetch(address, { method: section.dataset.method, headers, body: body?.value });
      const text = await response.text();
      status.textContent = `${response.status} ${response.statusText}`;
      answer.textContent = readable(text).slice(0, MAX_SHOWN);
      answer.hidden = text === '';
    } catch (error) {
      status.textContent = `There was no answer: ${error.message}`;
    }
    button.disabled = false;
    button.focus();
  });
}

function readable(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

document.addEventListener('DOMContentLoaded', () => {
  updateLive();
  keepLanguage();
  offerTrial();
});
