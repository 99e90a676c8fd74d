/** What JupyterLab's packages need when they are imported and jsdom does not have. */
const world = globalThis as unknown as Record<string, unknown> & {
  window?: { MouseEvent: typeof MouseEvent };
};
if (world.window) {
  world.DragEvent ??= class DragEvent extends world.window.MouseEvent {};
  world.requestIdleCallback ??= (callback: () => void) =>
    setTimeout(callback, 0);
  world.matchMedia ??= () => ({
    matches: false,
    addListener: () => undefined,
    removeListener: () => undefined,
    addEventListener: () => undefined,
    removeEventListener: () => undefined
  });
}
