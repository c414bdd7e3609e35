import type { Json } from '../../profile/json.ts';
import type { Schema } from '../../schemas/compile.ts';
import type { DirectInput, DirectOperation, Reply } from '../operation.ts';
import { type Attribute, userAttributes } from './attributes.ts';
import { requestOf } from './change-account.ts';
import { LIST_RESPONSE, SCIM_ROOT, ScimError, scim, USER } from './messages.ts';
import { MAX_COUNT } from './query.ts';

type Document = Record<string, Json>;

/** Returns the supported features of SCIM (RFC 7643 §5). */
function serviceProviderConfig(baseUrl: string): Document {
  return {
    schemas: ['urn:ietf:params:scim:schemas:core:2.0:ServiceProviderConfig'],
    patch: { supported: true },
    bulk: { supported: false, maxOperations: 0, maxPayloadSize: 0 },
    filter: { supported: true, maxResults: MAX_COUNT },
    changePassword: { supported: false },
    sort: { supported: false },
    etag: { supported: true },
    pagination: {
      cursor: true,
      index: true,
      defaultPaginationMethod: 'index',
      defaultPageSize: 100,
      maxPageSize: MAX_COUNT,
    },
    authenticationSchemes: [
      {
        type: 'oauthbearertoken',
        name: 'SCIM token',
        description: 'Authorization: Bearer with a SCIM token, and X-Request-Origin with its origin.',
        primary: true,
      },
    ],
    meta: metaOf('ServiceProviderConfig', '/ServiceProviderConfig', baseUrl),
  };
}

/** Returns the resource type of accounts (RFC 7643 §6). */
function userResourceType(baseUrl: string): Document {
  return {
    schemas: ['urn:ietf:params:scim:schemas:core:2.0:ResourceType'],
    id: 'User',
    name: 'User',
    endpoint: '/Users',
    description: 'Dashboard account',
    schema: USER,
    schemaExtensions: [],
    meta: metaOf('ResourceType', '/ResourceTypes/User', baseUrl),
  };
}

/** Returns the schema of accounts (RFC 7643 §7). */
function userSchema(baseUrl: string): Document {
  return {
    schemas: ['urn:ietf:params:scim:schemas:core:2.0:Schema'],
    id: USER,
    name: 'User',
    description: 'Dashboard account',
    attributes: userAttributes.map((attribute) => toDocument(attribute, 1)),
    meta: metaOf('Schema', `/Schemas/${USER}`, baseUrl),
  };
}

/**
 * RFC 7643 §2.3.8 does not allow complex attributes within complex ones. §7 itself nests one, and clients accept as
 * many.
 */
const MAX_DEPTH = 2;

/**
 * Describes an attribute for /Schemas. Attributes deeper than MAX_DEPTH are described as strings, although they are
 * objects: the standard cannot describe them.
 *
 * @param depth depth of the attribute, from 1
 */
function toDocument(attribute: Attribute, depth: number): Document {
  const { subAttributes, canonicalValues, ...characteristics } = attribute;
  const isDescribed = subAttributes !== undefined && depth <= MAX_DEPTH;
  return {
    ...characteristics,
    ...(subAttributes && !isDescribed && { type: 'string', description: undescribed(attribute) }),
    ...(canonicalValues && { canonicalValues: [...canonicalValues] }),
    ...(isDescribed && { subAttributes: subAttributes.map((one) => toDocument(one, depth + 1)) }),
  };
}

function undescribed({ description, subAttributes = [] }: Attribute): string {
  return `${description} No string but an object, with ${subAttributes.map(({ name }) => name).join(', ')}.`;
}

function metaOf(resourceType: string, path: string, baseUrl: string): Json {
  return { resourceType, location: `${baseUrl}${SCIM_ROOT}${path}` };
}

/** Returns a list response with all resources, which always fit on one page. */
function listOf(resources: Document[]): Document {
  return {
    schemas: [LIST_RESPONSE],
    totalResults: resources.length,
    startIndex: 1,
    itemsPerPage: resources.length,
    Resources: resources,
  };
}

const EXAMPLE_BASE = 'https://penstock.example';

/**
 * Creates an operation that returns a discovery document, for example /Schemas. A filter is refused with 403 (RFC 7644
 * §4).
 */
function discovery(
  described: Pick<DirectOperation, 'id' | 'path' | 'summary'> & { params?: Record<string, string> },
  documentFor: (baseUrl: string, params: Record<string, string>) => Document | undefined,
): DirectOperation {
  const { params, ...rest } = described;
  return {
    ...scim,
    ...rest,
    kind: 'direct',
    method: 'GET',
    description: 'One of the three discovery endpoints of SCIM.',
    query: {
      type: 'object',
      properties: {
        filter: { type: 'string', description: 'Not allowed: a request with a filter is refused with 403.' },
      },
    },
    replies: { 200: { description: 'The document.', schema: aDocument } },
    refusals: ['scimNoFilterHere', ...(params ? (['scimResourceNotFound'] as const) : [])],
    example: {
      query: {},
      ...(params && { params }),
      reply: documentFor(EXAMPLE_BASE, params ?? {})!,
    },
    handle: async (_caller, input: DirectInput): Promise<Reply> => {
      if (input.query.filter !== undefined) throw new ScimError('scimNoFilterHere');
      const body = documentFor(requestOf(input).baseUrl, input.params);
      if (!body) throw new ScimError('scimResourceNotFound');
      return { status: 200, body };
    },
  };
}

const aDocument: Schema = {
  type: 'object',
  required: ['schemas'],
  properties: { schemas: { type: 'array', items: { type: 'string' } } },
};

/** Creates the discovery endpoints of RFC 7644 §4. */
export function discoveryOperations(): DirectOperation[] {
  const at = (path: string) => `${SCIM_ROOT}${path}`;
  return [
    discovery(
      {
        id: 'scim.service_provider_config',
        path: at('/ServiceProviderConfig'),
        summary: 'Get the supported features of SCIM',
      },
      serviceProviderConfig,
    ),
    discovery(
      { id: 'scim.resource_types', path: at('/ResourceTypes'), summary: 'List the resource types' },
      (baseUrl) => listOf([userResourceType(baseUrl)]),
    ),
    discovery(
      {
        id: 'scim.resource_types.get',
        path: at('/ResourceTypes/:id'),
        summary: 'Get a resource type',
        params: { id: 'User' },
      },
      (baseUrl, { id }) => (id === 'User' ? userResourceType(baseUrl) : undefined),
    ),
    discovery({ id: 'scim.schemas', path: at('/Schemas'), summary: 'List the schemas' }, (baseUrl) =>
      listOf([userSchema(baseUrl)]),
    ),
    discovery(
      {
        id: 'scim.schemas.get',
        path: at('/Schemas/:id'),
        summary: 'Get a schema',
        params: { id: USER },
      },
      (baseUrl, { id }) => (id === USER ? userSchema(baseUrl) : undefined),
    ),
  ];
}
