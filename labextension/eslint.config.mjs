import js from '@eslint/js';
import jupyter from '@jupyter/eslint-plugin';
import prettier from 'eslint-config-prettier';
import { defineConfig } from 'eslint/config';
import globals from 'globals';
import tseslint from 'typescript-eslint';

export default defineConfig([
  { ignores: ['node_modules', 'lib', '**/*.js', '**/*.mjs'] },
  js.configs.recommended,
  tseslint.configs.recommended,
  { plugins: { jupyter } },
  jupyter.configs.recommended,
  {
    files: ['src/**/*.ts', 'src/**/*.tsx'],
    languageOptions: { globals: globals.browser },
    rules: {
      '@typescript-eslint/consistent-type-imports': [
        'error',
        { fixStyle: 'inline-type-imports' }
      ],
      '@typescript-eslint/no-namespace': 'off',
      curly: 'error',
      eqeqeq: 'error',
      'prefer-arrow-callback': 'error',
      // sentences that the kernel sends are in the catalogue; a test finds it complete
      'jupyter/no-dynamic-translation': 'off',
      // the panel is there from the start, and the whole extension is smaller than one of its parts would save
      'jupyter/prefer-lazy-imports': 'off'
    }
  },
  {
    files: ['src/__tests__/**'],
    rules: { 'jupyter/no-untranslated-string': 'off' }
  },
  prettier
]);
