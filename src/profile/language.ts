/** ISO 639-1 where it has a code, else 639-2: the languages that messages can be chosen by. */
const LANGUAGES = new Set(
  `
  en af agq ak sq am ar hy as ay az ksf bas eu be bem bn bez bs br bg my km ca tzm chr cgg zh swc kw
  hr cs da dav dua nl dz guz et eo ewo ee fo fa fil fi fr gl lg ka de gsw el kl gn gu ha haw he hi hu
  is ig id iu ga it jv ja dyo kab kln kam kn ks kk ebu ki rw ky ko ku lo la lv ln lt lu lb luo luy
  jmc mk mg ms ml mt gv mr mas mer mo mn mfe mua naq ne nd nb nus nyn nn om ps ff pl pt pa qu rm ro
  rof ru rwk saq se sbp sa gd sr seh ksb sn ii sd si sk sl so es sw sv shi tl tg ta twq tt te teo th
  bo ti to tr tk ug uk ur uz vai vi vun cy xh yav yi yo dje zu
`
    .trim()
    .split(/\s+/),
);

/** The longest tag that is looked at; BCP 47 asks for 35 characters. */
const MAX_LENGTH = 35;
const SUBTAG = /[-_]/;

/**
 * The code of a supported language, lower-case, or undefined. A region or script is dropped: `pt-BR` and
 * `pt_BR` are `pt`.
 */
export function normalizeLanguage(text: string): string | undefined {
  if (LANGUAGES.has(text)) return text;
  if (text.length > MAX_LENGTH) return undefined;
  const end = text.search(SUBTAG);
  const language = (end === -1 ? text : text.slice(0, end)).toLowerCase();
  return LANGUAGES.has(language) ? language : undefined;
}
