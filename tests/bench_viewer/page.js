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
  let selector = null, last = -1;
  const read = (element, width, height, at) => {
    const n = readStamp(ctx, element, width, height);
    if (n < 0 || n === last) return;
    last = n;
    bench.first ??= at;
    seen.push([n, at]);
  };
  // A canvas is read once the frame is made: its own callback may run after this one. The time is
  // that of the frame's callbacks, for every contender.
  const after = new MessageChannel();
  after.port1.onmessage = ({ data: at }) => {
    const element = document.querySelector(selector);
    if (element instanceof HTMLCanvasElement && element.width > 100) read(element, element.width, element.height, at);
  };
  const look = () => {
    if (bench.sample) after.port2.postMessage(performance.now());
    requestAnimationFrame(look);
  };
  // An <img> is blank from a new src until it is loaded, so it is looked at then. Reading one decodes
  // it once more, which takes as long as showing it: one of so many is read, and the others counted.
  const EVERY = 5;
  let loads = 0, total = 0, frame = 0;
  document.addEventListener("load", ({ target: t }) => {
    if (!bench.sample || !(t instanceof HTMLImageElement) || !t.matches(selector) || t.naturalWidth <= 100) return;
    requestAnimationFrame((at) => {
      if (at === frame || !t.complete) return;
      frame = at;
      loads++;
      if (total++ % EVERY === 0) read(t, t.naturalWidth, t.naturalHeight, performance.now());
    });
  }, true);
  window.bench = {
    seen,
    sample: true,
    first: null, // when the first picture was on screen
    watch(s) { selector = s; requestAnimationFrame(look); },
    take() {
      const got = { seen: seen.splice(0), loads, traffic: { ...traffic } };
      loads = 0;
      return got;
    },
    panel: () => window.jupyterapp && [...jupyterapp.shell.widgets("main")].find((w) => w.sessionContext),
    kernel() { return this.panel()?.sessionContext.session?.kernel?.status; },
    stall(ms) {
      const end = performance.now() + ms;
      while (performance.now() < end);
      return performance.now();
    },
  };
})();
