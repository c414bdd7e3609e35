import { Tokenizer, type TokenizerCallbacks } from 'htmlparser2';

/** Attributes that lead somewhere, or are followed by themselves. */
const LEADING = ['href', 'xlink:href', 'action', 'formaction', 'ping', 'target', 'http-equiv', 'download'];

/** Those that load something, but for what stands in the page itself. */
const LOADING = ['src', 'srcset', 'poster', 'background', 'data'];

const nothing = () => {};

const ignored: TokenizerCallbacks = {
  ...{ onattribdata: nothing, onattribentity: nothing, onattribend: nothing, onattribname: nothing },
  ...{ oncdata: nothing, onclosetag: nothing, oncomment: nothing, ondeclaration: nothing, onend: nothing },
  ...{ onopentagend: nothing, onopentagname: nothing, onprocessinginstruction: nothing },
  ...{ onselfclosingtag: nothing, ontext: nothing, ontextentity: nothing },
};

/**
 * A page whose links and forms lead nowhere, and that loads nothing: such an attribute is called `data-…`. The guard is
 * the policy that it is sent with; this keeps a preview the page that it is, whatever is pressed. One step through the
 * text, however deep its elements are: a tree of them would take minutes.
 */
export function quiet(page: string): string {
  /** Where the names begin that are changed. */
  const places: number[] = [];
  let isLoading = false;
  const tokenizer = new Tokenizer(
    { decodeEntities: false },
    {
      ...ignored,
      // Else a title within a drawing would be passed over, which browsers read as markup.
      isInForeignContext: () => true,
      onattribname(start, end) {
        const name = page.slice(start, end).toLowerCase();
        isLoading = LOADING.includes(name);
        if (isLoading || LEADING.includes(name)) places.push(start);
      },
      onattribdata(start) {
        if (isLoading && /^\s*data:/i.test(page.slice(start, start + 20))) places.pop();
        isLoading = false;
      },
    },
  );
  tokenizer.write(page);
  tokenizer.end();
  let text = '';
  let from = 0;
  for (const place of places) {
    text += `${page.slice(from, place)}data-`;
    from = place;
  }
  return text + page.slice(from);
}
