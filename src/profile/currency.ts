/** Codes of clients in the field, of which some are no longer in ISO 4217, and the codes that came since. */
const FURTHER_CODES = `
  AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BRL BSD BTC BTN BWP
  BYR BZD CAD CDF CHF CLF CLP CNY COP CRC CUC CUP CVE CZK DJF DKK DOP DZD EEK EGP ERN ETB EUR FJD FKP
  GBP GEL GGP GHS GIP GMD GNF GTQ GYD HKD HNL HRK HTG HUF IDR ILS IMP INR IQD IRR ISK JEP JMD JOD JPY
  KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LTL LVL LYD MAD MDL MGA MKD MMK MNT MOP MRO
  MTL MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB
  RWF SAR SBD SCR SDG SEK SGD SHP SLL SOS SRD STD SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH
  UGX USD UYU UZS VEF VND VUV WST XAF XAG XAU XCD XDR XOF XPD XPF XPT YER ZAR ZMK ZMW ZWL
  BYN MRU SLE STN UYW VED VES XCG ZWG
`
  .trim()
  .split(/\s+/);

const CURRENCIES = new Set([...Intl.supportedValuesOf('currency'), ...FURTHER_CODES]);

/** The ISO 4217 code in upper case, or undefined for what is no currency. Case has no meaning in a code. */
export function normalizeCurrency(text: string): string | undefined {
  if (CURRENCIES.has(text)) return text;
  if (text.length !== 3) return undefined;
  const code = text.toUpperCase();
  return CURRENCIES.has(code) ? code : undefined;
}
