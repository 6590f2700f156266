// Counts what the sockets carry, and notes when which frame is on screen.
(() => {
  const Native = window.WebSocket;
  const traffic = { inBytes: 0, inMessages: 0, outBytes: 0, outMessages: 0 };
  const size = (d) => typeof d === "string" ? d.length : d.byteLength ?? d.size ?? 0;
  window.WebSocket = class extends Native {
    constructor(...args) {
      super(...args);
      this.addEventListener("message", (e) => { traffic.inBytes += size(e.data); traffic.inMessages++; });
    }
    send(d) { traffic.outBytes += size(d); traffic.outMessages++; return super.send(d); }
  };
  const seen = [];
  const small = new OffscreenCanvas(STAMP.cells * 5, 1);
  const ctx = small.getContext("2d", { willReadFrequently: true });
  let selector = null, last = -1, ticks = 0;
  const note = (n) => { if (n >= 0 && n !== last) { last = n; seen.push([n, performance.now()]); } };
  const look = () => {
    ticks++;
    const element = selector && document.querySelector(selector);
    if (element instanceof HTMLCanvasElement && element.width > 100)
      note(readStamp(ctx, element, element.width, element.height));
    requestAnimationFrame(look);
  };
  // An <img> is blank from a new src until it is loaded, so it is read then.
  document.addEventListener("load", (e) => {
    const t = e.target;
    if (selector && t instanceof HTMLImageElement && t.matches(selector) && t.naturalWidth > 100)
      requestAnimationFrame(() => { if (t.complete) note(readStamp(ctx, t, t.naturalWidth, t.naturalHeight)); });
  }, true);
  window.bench = {
    traffic, seen,
    watch(s) { selector = s; requestAnimationFrame(look); },
    take() { const all = seen.splice(0); const t = ticks; ticks = 0; return { seen: all, traffic: { ...traffic }, ticks: t }; },
    panel: () => window.jupyterapp && [...jupyterapp.shell.widgets("main")].find((w) => w.sessionContext),
    kernel() { return this.panel()?.sessionContext.session?.kernel?.status; },
    heap: () => performance.memory ? performance.memory.usedJSHeapSize : 0,
    stall(ms) { const end = performance.now() + ms; while (performance.now() < end); },
  };
})();
