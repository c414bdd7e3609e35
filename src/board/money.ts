import { type Html, html } from '../platform/html.ts';

/** Number formats by currency code. There are about 300 codes. */
const formats = new Map<string, Intl.NumberFormat>();

function formatOf(currency: string): Intl.NumberFormat {
  const existing = formats.get(currency);
  if (existing) return existing;
  const format = new Intl.NumberFormat('en-US', { style: 'currency', currency });
  formats.set(currency, format);
  return format;
}

/**
 * Renders an amount with the decimals of its currency, for example `12.50 USD` and `3,697 JPY`. If that rounds the
 * amount, the title has the exact one.
 * @param amount number, or a decimal in plain notation of any length
 */
export function money(amount: number | string, currency: string): Html {
  const exact = `${amount} ${currency}`;
  if (!/^[A-Z]{3}$/.test(currency)) return html`${exact}`;
  const parts = formatOf(currency).formatToParts(amount as number);
  const digits = parts
    .filter(({ type }) => type !== 'currency' && type !== 'literal')
    .map(({ value }) => value)
    .join('');
  const isRounded = Number(digits.replaceAll(',', '')) !== Number(amount);
  return html`<span${isRounded && html` title="${exact}"`}>${digits} ${currency}</span>`;
}
