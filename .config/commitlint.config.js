/** Commit messages: `area: imperative summary` of at most 72 characters, and a body that says why. */
export default {
  parserPreset: {
    parserOpts: { headerPattern: /^([a-z0-9,/ -]+): (.+)$/, headerCorrespondence: ['type', 'subject'] },
  },
  rules: {
    'type-empty': [2, 'never'],
    'subject-empty': [2, 'never'],
    'subject-full-stop': [2, 'never', '.'],
    'header-max-length': [2, 'always', 72],
    'body-empty': [2, 'never'],
    'body-leading-blank': [2, 'always'],
  },
};
