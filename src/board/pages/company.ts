import { type Html, html, type Part } from '../../platform/html.ts';
import { isUuid } from '../../profile/values.ts';
import { PageError, type PageServices, type Visit } from '../console.ts';

/** Maximum number of companies offered to BOARD_USER. */
const MAX_COMPANIES = 200;

/** Returns the company of the page: the viewer's company, or the one that BOARD_USER selected. */
export async function chosenCompany({ services, viewer, query }: Visit<PageServices>): Promise<{
  company: { id: string; name: string };
  /** Selection of the company; absent if the viewer has only one. */
  field: Part;
}> {
  const { prisma } = services.database;
  const isOperator = viewer.accountId === undefined;
  const companies = await prisma.company.findMany({
    where: isOperator ? {} : { id: viewer.companyId ?? '' },
    orderBy: { name: 'asc' },
    take: MAX_COMPANIES,
  });
  const wanted = query('company');
  const company =
    wanted === ''
      ? companies[0]
      : (companies.find(({ id, name }) => id === wanted || name === wanted) ??
        (isOperator
          ? await prisma.company.findFirst({
              where: isUuid(wanted) ? { id: wanted } : { name: wanted },
            })
          : undefined));
  if (!company) throw new PageError(404, 'Company not found, or your account does not belong to it.');
  const field = companies.length > 1 ? companyField(companies, company) : undefined;
  return { company, field };
}

/** Renders a company selection. With MAX_COMPANIES or more companies, the user types the name or id. */
function companyField(companies: { id: string; name: string }[], chosen: { id: string; name: string }): Html {
  if (companies.length < MAX_COMPANIES)
    return html`<label>Company <select name="company">${companies.map(({ id, name }) => html`<option value="${id}"${id === chosen.id && html` selected`}>${name}</option>`)}</select></label>`;
  return html`<label>Company, by name or id <input name="company" list="companies" value="${chosen.name}" required autocomplete="off"><datalist id="companies">${companies.map(({ name }) => html`<option value="${name}"></option>`)}</datalist></label>`;
}
