import { listing } from './activity/activity.ts';

/** GET /purchases/product_list */
export const purchasesProductList = () =>
  listing('products', {
    id: 'purchases.product_list',
    path: '/purchases/product_list',
    permission: 'purchases.product_list',
    summary: 'List the ids of products',
    description: 'Lists all products that were ever bought in the workspace, 250 per page.',
    example: 'book',
  });
