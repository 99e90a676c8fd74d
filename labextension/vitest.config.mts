import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    environment: 'jsdom',
    include: ['src/**/*.spec.{ts,tsx}'],
    // published for bundlers: their imports have no file endings
    server: { deps: { inline: [/@jupyterlab/, /@jupyter\//, /@lumino/] } },
    css: false,
    setupFiles: ['./vitest.setup.ts']
  }
});
