// The page's side of the live viewer: paints pictures, says how that went, draws overlays, has the controls.
//
// One module without imports, because front ends are given it as one string. What it says to the kernel, and what it
// is told, is written down in docs/design/viewer.md. Four rules hold throughout:
//
// - Nothing waits in line. A camera has at most one picture being decoded, one waiting for that, one waiting to be
//   painted; a newer one takes the place of the one that waits.
// - What is known before the kernel answers is shown before it answers: zoom and pan move the picture there is until
//   the sharp one comes.
// - Nothing that is told is believed: a missing key or a wrong type is as good as none, and text is never markup.
// - The layout moves only when people ask it to.

/**
 * @typedef {[number, number, number, number]} Rect  x, y, width, height; in pixels of the source unless said otherwise
 *
 * @typedef {object} Part  one picture of one camera, as it came
 * @property {?number} seq
 * @property {?Rect} roi  what it shows of the source
 * @property {string} mime
 * @property {?number} age_us  since it was published, when it was sent
 * @property {object[]} shapes
 * @property {?Uint8Array} bytes
 * @property {number} received  by performance.now()
 * @property {(painted: boolean) => void} done  to be called once
 *
 * @typedef {object} Picture  a part that is decoded
 * @property {Part} part
 * @property {ImageBitmap} bitmap
 * @property {(?HTMLCanvasElement)[]} masks  one for each shape that is a mask, in their order
 *
 * @typedef {object} Model  what anywidget gives
 * @property {(name: string) => any} get
 * @property {(name: string, call: Function) => void} on
 * @property {(name: string, call: Function) => void} off
 * @property {(content: object) => void} send
 */

const ACK_MS = 100; // how long an acknowledgement waits for the picture to be painted
const OUT_OF_SIGHT_MS = 300; // how long a view is out of sight before it says so
const RESIZE_MS = 150;
const ROI_MS = 100;
const PROBE_MS = 67;
const PROBE_AGAIN_MS = 400; // how often the values of a pixel at rest are asked for anew
const STEP_MS = 60;
const READ_OUT_MS = 500;
const LABEL_MS = 5000; // how often what screen readers are told of a picture may change
const SILENCE_MS = 5000; // without a word from the kernel, which speaks every second
const ROI_SETTLED_MS = 400; // after this, a picture near what was asked for is the answer
const ROI_GIVEN_UP_MS = 3000; // after this, whatever is shown is
const CLICK_PX = 4; // a pointer that moved less has clicked
const LEAST_ROI = 16;
const MOST_LATE = 64; // messages by which one is late; who is farther behind counts anew
const MOST_SHAPES = 5000;
const MOST_POINTS = 100_000;
const DEFAULT_COLOR = "#ffb300";
const MIMES = new Set(["image/jpeg", "image/png", "image/webp"]);
const AS_IS = { colorSpaceConversion: "none", premultiplyAlpha: "none" };
const SVG = "http://www.w3.org/2000/svg";

/**
 * What people can do: a button, its keys and its line of the help each. Icons are strokes in a square of 16.
 *
 * @type {{id: string, label: string, keys: string[], shown: string, icon: string, group: number, held?: boolean}[]}
 */
const COMMANDS = [
  { id: "back", label: "Step back", keys: [","], shown: ", or ←", icon: "M11.5 4v8L6 8zM4.2 4v8", group: 0, held: true },
  { id: "play", label: "Pause", keys: [" ", "k"], shown: "Space or K", icon: "M5.7 3.5v9M10.3 3.5v9", group: 0 },
  { id: "forward", label: "Step forward", keys: ["."], shown: ". or →", icon: "M4.5 4v8L10 8zM11.8 4v8", group: 0, held: true },
  { id: "snapshot", label: "Save a snapshot", keys: ["s"], shown: "S", icon: "M2.5 5h2.4l1-1.7h4.2l1 1.7h2.4v7.7h-11zM8 6.7a2.1 2.1 0 1 0 0 4.2a2.1 2.1 0 1 0 0-4.2", group: 1 },
  { id: "record", label: "Record", keys: ["r"], shown: "R", icon: "M8 3.8a4.2 4.2 0 1 0 0 8.4a4.2 4.2 0 1 0 0-8.4", group: 1 },
  { id: "fit", label: "Fit", keys: ["f", "0"], shown: "F or 0", icon: "M6 2.8H2.8V6M10 2.8h3.2V6M6 13.2H2.8V10M10 13.2h3.2V10", group: 2 },
  { id: "actual", label: "One to one", keys: ["1"], shown: "1", icon: "M2.6 5.5l1.7-1.3v7.6M8 6.4v.1M8 9.8v.1M11.2 5.5l1.7-1.3v7.6", group: 2 },
  { id: "out", label: "Zoom out", keys: ["-"], shown: "−", icon: "M7 2.9a4.1 4.1 0 1 0 0 8.2a4.1 4.1 0 1 0 0-8.2M10 10l3.4 3.4M5.1 7h3.8", group: 2, held: true },
  { id: "in", label: "Zoom in", keys: ["+", "="], shown: "+", icon: "M7 2.9a4.1 4.1 0 1 0 0 8.2a4.1 4.1 0 1 0 0-8.2M10 10l3.4 3.4M5.1 7h3.8M7 5.1v3.8", group: 2, held: true },
  { id: "probe", label: "Probe pixels", keys: ["p"], shown: "P", icon: "M8 2v4M8 10v4M2 8h4M10 8h4M8 7.95v.1", group: 3 },
  { id: "histogram", label: "Histogram", keys: ["h"], shown: "H", icon: "M2.5 13.3h11M4.2 10.8V9M6.7 10.8V4.5M9.3 10.8V3M11.8 10.8V7", group: 3 },
  { id: "overlays", label: "Hide overlays", keys: ["o"], shown: "O", icon: "M2.7 2.7h7v7h-7zM9.7 6.3h3.6v7h-7V9.7", group: 3 },
  { id: "fullscreen", label: "Full screen", keys: [], shown: "", icon: "M9.3 2.8h3.9v3.9M13.2 2.8L9 7M6.7 13.2H2.8V9.3M2.8 13.2L7 9", group: 4 },
  { id: "help", label: "Keys", keys: ["?"], shown: "?", icon: "M8 2.4a5.6 5.6 0 1 0 0 11.2a5.6 5.6 0 1 0 0-11.2M6.4 6.6a1.6 1.6 0 1 1 2.4 1.4c-.6.35-.8.6-.8 1.2M8 11.2v.05", group: 4 },
];
const PLAY_ICON = "M5.2 3.4v9.2L12.6 8z";

/** What else can be done, for the help. */
const GESTURES = [
  ["Drag", "pan, when zoomed"],
  ["Shift + drag", "show a region"],
  ["Shift + arrows", "pan, when zoomed"],
  ["Wheel", "zoom, when focused"],
  ["Arrows", "move the probe by 1, with Shift by 10"],
];
const GRID_GESTURES = [
  ["Enter or click", "enlarge a camera"],
  ["Esc", "back to all"],
];

/** Figures of the read-out: name, label, width of the value in digits, unit. */
const FIGURES = [
  ["fps", "", 10, ""],
  ["age", "age", 3, "ms"],
  ["lost", "drop/skip", 4, ""],
  ["seq", "", 6, ""],
  ["format", "", 0, ""],
  ["memory", "", 0, ""],
  ["encoder", "", 0, ""],
  ["mbit", "", 4, "Mbit/s"],
  ["rtt", "rtt", 3, "ms"],
  ["safe", "", 0, ""],
];

// --- values ------------------------------------------------------------------------------------------------------

/** @returns {number} */
const clamp = (value, least, most) => Math.min(Math.max(value, least), most);
/** @returns {?number} the number, if it is one */
const number = (value) => (typeof value === "number" && Number.isFinite(value) ? value : null);
/** @returns {string} the text, if it is some; else none */
const text = (value) => (typeof value === "string" ? value : "");
/** @returns {any[]} */
const list = (value) => (Array.isArray(value) ? value : []);
/** @returns {any} an object whose keys may be asked for */
const object = (value) => (typeof value === "object" && value !== null ? value : {});

/** @returns {?Rect} the rectangle, if it is one that shows something */
function rect(value) {
  const [x, y, w, h] = list(value).map(number);
  return x !== null && y !== null && w > 0 && h > 0 && list(value).length === 4 ? [x, y, w, h] : null;
}

/** @returns {Rect} the rectangle moved, and if need be shrunk, into a source of this size */
function inside([x, y, w, h], [width, height]) {
  const [cw, ch] = [clamp(w, Math.min(LEAST_ROI, width), width), clamp(h, Math.min(LEAST_ROI, height), height)];
  return [clamp(x, 0, width - cw), clamp(y, 0, height - ch), cw, ch];
}

/** @returns {Rect} the rectangle in whole pixels, within the source */
function whole([x, y, w, h], [width, height]) {
  const [left, top] = [clamp(Math.round(x), 0, width - 1), clamp(Math.round(y), 0, height - 1)];
  return [left, top, clamp(Math.round(w), 1, width - left), clamp(Math.round(h), 1, height - top)];
}

/** @returns {boolean} whether two rectangles are the same but for what alignment may change */
function near(a, b) {
  const slack = Math.max(4, 0.02 * Math.max(a[2], a[3]));
  return Math.abs(a[0] - b[0]) <= slack && Math.abs(a[1] - b[1]) <= slack &&
    Math.abs(a[0] + a[2] - b[0] - b[2]) <= slack && Math.abs(a[1] + a[3] - b[1] - b[3]) <= slack;
}

/** @returns {number} */
function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted.length ? sorted[sorted.length >> 1] : 0;
}

/** @returns {?Uint8Array} the bytes of a buffer in any of the forms that front ends hand over */
function bytesOf(buffer) {
  if (ArrayBuffer.isView(buffer)) return new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength);
  // Not by its class: where outputs are frames, it may be another window's.
  return Object.prototype.toString.call(buffer) === "[object ArrayBuffer]" ? new Uint8Array(buffer) : null;
}

/** @returns {?Uint8Array} */
function fromBase64(encoded) {
  try {
    return Uint8Array.from(atob(encoded), (char) => char.charCodeAt(0));
  } catch {
    return null;
  }
}

let takesOptions = true; // not every browser can be told how to decode

/** @returns {Promise<ImageBitmap>} the picture with the values that it has; fails if it is none */
async function bitmapOf(bytes, type) {
  const blob = new Blob([bytes], { type });
  if (!takesOptions) return createImageBitmap(blob);
  try {
    return await createImageBitmap(blob, AS_IS);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    const bitmap = await createImageBitmap(blob);
    takesOptions = false;
    return bitmap;
  }
}

/** @returns {?Uint8Array} what came with a part, or in it */
function payload(holder, buffer) {
  return (holder.b64 !== true && bytesOf(buffer)) || (typeof holder.data === "string" ? fromBase64(holder.data) : null);
}

const colors = new Map();
/** @returns {string} the colour, if the browser knows it */
function color(value) {
  const asked = text(value);
  if (!asked || asked.length > 64) return DEFAULT_COLOR;
  if (!colors.has(asked)) {
    if (colors.size > 500) colors.clear();
    colors.set(asked, CSS.supports("color", asked) ? asked : DEFAULT_COLOR);
  }
  return colors.get(asked);
}

/** @returns {string} a size or count with thin spaces between thousands, so that long ones can be read */
const grouped = (value) => String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, "\u2009");

// --- elements ----------------------------------------------------------------------------------------------------

/**
 * An element; `text` becomes its text, other keys its attributes.
 *
 * @returns {any}
 */
function make(tag, attributes = {}, children = []) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") node.textContent = value;
    else if (value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

/** @returns {SVGSVGElement} */
function icon(path) {
  const svg = document.createElementNS(SVG, "svg");
  const node = document.createElementNS(SVG, "path");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("aria-hidden", "true");
  node.setAttribute("d", path);
  svg.append(node);
  return svg;
}

/** Set the text if it is another: what does not change costs nothing, and is not announced again. */
function say(node, words) {
  if (node.textContent !== words) node.textContent = words;
}

/** Set an attribute, or remove it for null, if it is another. */
function mark(node, name, value) {
  if (node.getAttribute(name) === value) return;
  if (value === null) node.removeAttribute(name);
  else node.setAttribute(name, value);
}

// --- time --------------------------------------------------------------------------------------------------------

/** Timers that can be ended all at once. */
class Timers {
  constructor() {
    this.running = new Set();
  }

  /** @returns {() => void} what calls it off */
  after(ms, call) {
    const timer = setTimeout(() => {
      this.running.delete(timer);
      call();
    }, ms);
    this.running.add(timer);
    return () => {
      clearTimeout(timer);
      this.running.delete(timer);
    };
  }

  /** @returns {() => void} what calls `call` at once, then at most once each `ms`; the last call is never lost */
  throttled(ms, call) {
    let busy = false;
    let again = false;
    const run = () => {
      again = false;
      busy = true;
      call();
      this.after(ms, () => {
        busy = false;
        if (again) run();
      });
    };
    return () => {
      if (busy) again = true;
      else run();
    };
  }

  end() {
    for (const timer of this.running) clearTimeout(timer);
    this.running.clear();
  }
}

// --- acknowledging -----------------------------------------------------------------------------------------------

/** Accounts for what came and what was painted, and answers messages that ask for it. */
class Account {
  /** @param {Timers} timers  @param {(ack: object) => void} send */
  constructor(timers, send) {
    this.timers = timers;
    this.send = send;
    this.n = 0;
    this.painted = 0;
    this.missed = 0;
    this.bytes = 0;
    this.receipt = null; // of the last message
    this.since = null; // the last receipt that the last acknowledgement knew
    this.decodes = [];
    this.decode_us = 0;
  }

  /**
   * A message came, with `count` pictures.
   *
   * @returns {(painted: boolean) => void} to be called once for each of them
   */
  received(n, bytes, asked, count) {
    this.receipt = performance.now();
    this.since ??= this.receipt;
    this.n = n;
    this.bytes += bytes;
    let left = count;
    let due = asked;
    const answer = () => {
      if (!due) return;
      due = false;
      callOff?.();
      this.answer();
    };
    const callOff = asked ? this.timers.after(ACK_MS, answer) : null;
    if (!count) answer();
    return (painted) => {
      if (painted) this.painted = Math.max(this.painted, n);
      else this.missed += 1;
      left -= 1;
      if (left <= 0) answer();
    };
  }

  /** @returns {boolean} whether a message is not newer than the last: it came too late, or twice */
  isPast(n) {
    return n > 0 && n > this.n - MOST_LATE && n <= this.n;
  }

  answer() {
    if (this.decodes.length) this.decode_us = Math.round(median(this.decodes));
    this.send({
      n: this.n,
      painted: this.painted,
      missed: this.missed,
      held_us: Math.round((performance.now() - this.receipt) * 1000),
      bytes: this.bytes,
      span_us: Math.round((this.receipt - this.since) * 1000),
      decode_us: this.decode_us,
    });
    this.since = this.receipt;
    this.missed = 0;
    this.bytes = 0;
    this.decodes = [];
  }
}

// --- overlays ----------------------------------------------------------------------------------------------------

const joined = (points, first, then) => points.map(([x, y], i) => `${i ? then : first}${x} ${y}`).join("");

/** @returns {[number, number][]} */
function pointsOf(value) {
  const points = list(value).map((point) => [number(list(point)[0]), number(list(point)[1])]);
  return points.filter(([x, y]) => x !== null && y !== null);
}

/**
 * What to stroke and fill, and where the label goes.
 *
 * Points are lines of no length with round ends: so they keep their size on the screen, as strokes do.
 *
 * @returns {?{d: string, at: [number, number], above?: boolean, points?: number}}
 */
function outline(shape) {
  const box = shape.kind === "box" ? rect(shape.xywh) : null;
  if (box) return { d: `M${box[0]} ${box[1]}h${box[2]}v${box[3]}h${-box[2]}z`, at: [box[0], box[1]], above: true };
  if (!["points", "line", "polygon"].includes(shape.kind)) return null;
  const points = pointsOf(shape.points);
  if (!points.length) return null;
  const d = shape.kind === "points" ? points.map(([x, y]) => `M${x} ${y}h0`).join("") : joined(points, "M", "L");
  const closed = shape.kind === "polygon" || (shape.kind === "line" && shape.closed === true);
  return { d: closed ? `${d}z` : d, at: points[0], points: points.length };
}

/**
 * A mask as a picture of its colour: what is white in it shows.
 *
 * @returns {Promise<?HTMLCanvasElement>}
 */
async function paintedMask(shape) {
  const bytes = fromBase64(text(shape.bits));
  if (!bytes) return null;
  const bitmap = await bitmapOf(bytes, "image/png").catch(() => null);
  if (!bitmap) return null;
  const canvas = make("canvas", { width: String(bitmap.width), height: String(bitmap.height) });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(bitmap, 0, 0);
  bitmap.close();
  const pixels = context.getImageData(0, 0, canvas.width, canvas.height);
  const { data } = pixels;
  for (let i = 0; i < data.length; i += 4) data[i + 3] = (data[i] * data[i + 3]) / 255;
  context.putImageData(pixels, 0, 0);
  context.globalCompositeOperation = "source-in";
  context.fillStyle = color(shape.color);
  context.fillRect(0, 0, canvas.width, canvas.height);
  return canvas;
}

/** Shapes over a picture. Elements are kept and changed, so that hundreds of shapes with every picture cost little. */
class Overlay {
  constructor() {
    this.svg = document.createElementNS(SVG, "svg");
    this.svg.setAttribute("preserveAspectRatio", "none");
    this.masks = make("div", { class: "masks" });
    this.labels = make("div", { class: "labels" });
    this.element = make("div", { class: "overlay", "aria-hidden": "true" }, [this.masks, this.svg, this.labels]);
    this.painted = new Map(); // masks by what they were made of
  }

  /** Decode the masks among shapes, ahead of being drawn. @returns {Promise<(?HTMLCanvasElement)[]>} */
  async prepare(shapes) {
    const masks = shapes.filter((shape) => shape.kind === "mask").slice(0, 64);
    if (!masks.length) return [];
    const before = this.painted;
    const keys = masks.map((shape, i) => `${i} ${color(shape.color)} ${text(shape.bits)}`);
    const canvases = await Promise.all(masks.map((shape, i) => before.get(keys[i]) ?? paintedMask(shape)));
    this.painted = new Map(keys.map((key, i) => [key, canvases[i]]));
    return canvases;
  }

  /**
   * @param {object[]} shapes
   * @param {Rect} roi  what the picture shows
   * @param {number} height  its CSS pixels
   * @param {Rect} all  the whole frame
   */
  draw(shapes, masks, roi, height, all) {
    mark(this.svg, "viewBox", roi.join(" "));
    let [paths, labels, points, mask] = [0, 0, 0, 0];
    const masked = [];
    for (const shape of shapes) {
      const line = outline(shape);
      points += line?.points ?? 0;
      if (points > MOST_POINTS) break;
      if (line) this.path(paths++, shape, line.d);
      if (shape.kind === "mask") masked.push(this.mask(masks[mask++], shape, roi, all));
      const at = line?.at ?? (shape.kind === "text" ? pointsOf([shape.at])[0] : rect(shape.roi)?.slice(0, 2));
      const words = text(shape.kind === "text" ? shape.text : shape.label).slice(0, 200);
      if (at && words && this.label(labels, shape, words, at, line?.above, roi, height)) labels += 1;
    }
    this.masks.replaceChildren(...masked.filter(Boolean));
    while (this.svg.childNodes.length > paths) this.svg.lastChild.remove();
    while (this.labels.childNodes.length > labels) this.labels.lastChild.remove();
  }

  path(index, shape, d) {
    const path = this.svg.childNodes[index] ?? this.svg.appendChild(document.createElementNS(SVG, "path"));
    const dots = shape.kind === "points";
    const width = dots ? 2 * clamp(number(shape.radius) ?? 3, 0.5, 50) : clamp(number(shape.width) ?? 2, 0.5, 50);
    const fill = dots || shape.kind === "line" ? 0 : clamp(number(shape.fill) ?? 0, 0, 1);
    mark(path, "d", d);
    mark(path, "stroke", color(shape.color));
    mark(path, "stroke-width", String(width));
    mark(path, "fill", fill ? color(shape.color) : "none");
    mark(path, "fill-opacity", String(fill));
  }

  mask(canvas, shape, roi, all) {
    if (!canvas) return null;
    place(canvas, rect(shape.roi) ?? all, roi);
    canvas.style.opacity = String(clamp(number(shape.fill) ?? 0.5, 0, 1));
    return canvas;
  }

  /** @returns {boolean} whether it is in sight, and was drawn */
  label(index, shape, words, [x, y], above, roi, height) {
    const [u, v] = [(x - roi[0]) / roi[2], (y - roi[1]) / roi[3]];
    if (u < -0.5 || u > 1 || v < -0.1 || v > 1) return false;
    const label = this.labels.childNodes[index] ?? this.labels.appendChild(make("span"));
    say(label, words);
    label.style.left = `${Math.max(u, 0) * 100}%`;
    label.style.top = `${Math.max(v, 0) * 100}%`;
    label.style.borderLeftColor = color(shape.color);
    label.classList.toggle("above", Boolean(above) && v * height > 18);
    return true;
  }
}

/** Place an element that shows the rectangle `shown` in one that shows `within`. */
function place(node, shown, within) {
  node.style.left = `${((shown[0] - within[0]) / within[2]) * 100}%`;
  node.style.top = `${((shown[1] - within[1]) / within[3]) * 100}%`;
  node.style.width = `${(shown[2] / within[2]) * 100}%`;
  node.style.height = `${(shown[3] / within[3]) * 100}%`;
}

// --- panels over the picture -------------------------------------------------------------------------------------

/** The values of one pixel. */
class Probe {
  constructor() {
    this.at = make("span");
    this.yuv = make("span");
    this.rgb = make("span");
    this.swatch = make("span", { class: "swatch" });
    const rows = [["x y", this.at], ["YUV", this.yuv], ["RGB", this.rgb]].map(([name, value]) =>
      make("div", {}, [make("span", { class: "name", text: name }), value]));
    this.element = make("div", { class: "panel probe", role: "group", "aria-label": "Pixel", hidden: true }, [
      this.swatch, make("div", { class: "rows" }, rows),
    ]);
    this.cross = make("div", { class: "cross", "aria-hidden": "true", hidden: true });
  }

  show(message) {
    const triple = (value) => (list(value).length ? list(value).slice(0, 3).map((v) => number(v) ?? "–") : null);
    const padded = (values) => values.map((v) => String(v).padStart(4)).join("");
    const [yuv, rgb] = [triple(message.yuv), triple(message.rgb)];
    say(this.yuv, yuv ? padded(yuv) : "   –");
    say(this.rgb, rgb ? padded(rgb) : "   –");
    this.swatch.style.backgroundColor = rgb ? `rgb(${rgb.map((v) => number(v) ?? 0).join(" ")})` : "";
    return `Y U V ${yuv ? yuv.join(" ") : "none"}, R G B ${rgb ? rgb.join(" ") : "none"}`;
  }
}

/** How often each code value occurs. */
class Histogram {
  constructor() {
    this.canvas = make("canvas", { width: "256", height: "96", role: "img", "aria-label": "Histogram: waiting" });
    this.words = make("div", { class: "words", text: "–" });
    this.element = make("div", { class: "panel histogram", hidden: true }, [this.canvas, this.words]);
  }

  show(message) {
    const curves = ["y", "r", "g", "b"].map((key) => {
      const counts = list(message[key]).slice(0, 256).map((count) => Math.max(number(count) ?? 0, 0));
      return counts.length === 256 ? counts : null;
    });
    this.draw(curves);
    const [mean, low, middle, high] = summary(curves[0] ?? curves[2] ?? []);
    const figures = `mean ${mean}, 5 % ${low}, median ${middle}, 95 % ${high}`;
    say(this.words, `${curves[0] ? "Y" : "G"} mean ${mean}  5/50/95 % ${low} ${middle} ${high}`);
    mark(this.canvas, "aria-label", `Histogram of ${curves[0] ? "Y" : "G"}: ${figures}`);
  }

  draw(curves) {
    const context = this.canvas.getContext("2d");
    const { width, height } = this.canvas;
    // The ends are left out of the scale: clipped values would flatten all others.
    const top = Math.max(1, ...curves.flatMap((counts) => counts?.slice(2, 254) ?? []));
    context.clearRect(0, 0, width, height);
    const colours = ["rgba(255,255,255,.28)", "#ff6b6b", "#63d471", "#6ea8ff"];
    curves.forEach((counts, i) => {
      if (!counts) return;
      const levels = counts.map((count) => height - 1 - (height - 3) * Math.min(count / top, 1));
      context.beginPath();
      levels.forEach((level, x) => context.lineTo(x + 0.5, level));
      if (i === 0) {
        context.lineTo(width, height);
        context.lineTo(0, height);
        context.fillStyle = colours[i];
        context.fill();
      } else {
        context.strokeStyle = colours[i];
        context.lineWidth = 1.25;
        context.stroke();
      }
    });
  }
}

/** @returns {(number|string)[]} mean, and the values that 5, 50 and 95 of a hundred pixels do not exceed */
function summary(counts) {
  const total = counts.reduce((sum, count) => sum + count, 0);
  if (!total) return ["–", "–", "–", "–"];
  const mean = counts.reduce((sum, count, value) => sum + count * value, 0) / total;
  const percentile = (share) => {
    let sum = 0;
    return counts.findIndex((count) => (sum += count) >= share * total);
  };
  return [mean.toFixed(1), percentile(0.05), percentile(0.5), percentile(0.95)];
}

// --- a camera ----------------------------------------------------------------------------------------------------

/** One camera: its pictures, and what of it is looked at. */
class Tile {
  /** @param {View} view */
  constructor(view, cam, name) {
    this.view = view;
    this.cam = cam;
    this.name = name;
    /** @type {?Part} */ this.waiting = null;
    /** @type {?Picture} */ this.ready = null;
    /** @type {?Part} */ this.part = null; // on the canvas
    this.decoding = false;
    this.times = []; // when pictures were painted
    this.ages = [];
    this.status = {};
    /** @type {?[number, number]} */ this.source = null;
    /** @type {?Rect} */ this.shown = null; // on the canvas
    /** @type {?Rect} */ this.roi = null; // wanted; null for all
    this.asked = null; // when it was last asked for
    this.actual = false; // a pixel of the source for each of the screen's
    this.size = [0, 0];
    this.scale = 1; // CSS pixels for each of the source's
    this.gesture = null;
    /** @type {?[number, number]} */ this.pixel = null;
    this.histogramOn = false;
    this.labelled = -Infinity;
    this.sendRoi = view.timers.throttled(ROI_MS, () => {
      view.send("roi", { cam, roi: this.roi && whole(this.roi, this.sourceSize()) });
    });
    this.sendProbe = view.timers.throttled(PROBE_MS, () => this.askPixel());
    this.build();
  }

  build() {
    const grid = this.view.names.length > 1;
    this.canvas = make("canvas", { role: "img", "aria-label": `${this.name}, no picture yet`, width: "16", height: "9" });
    this.context = this.canvas.getContext("bitmaprenderer");
    this.overlay = new Overlay();
    this.probe = new Probe();
    this.histogram = new Histogram();
    this.layer = make("div", { class: "layer" }, [this.canvas, this.overlay.element]);
    this.rubber = make("div", { class: "rubber", hidden: true });
    this.frame = make("div", { class: "frame" }, [this.layer, this.probe.cross, this.rubber]);
    this.noteTitle = make("span", { text: `waiting for ${this.name} …` });
    this.noteText = make("span", { class: "why" });
    this.note = make("div", { class: "note" }, [this.noteTitle, this.noteText]);
    this.chip = make("div", { class: "chip", hidden: true });
    this.box = make("div", {
      class: "box", role: "application", tabindex: grid ? "-1" : "0", "aria-label": `Picture of ${this.name}. ? lists the keys`,
    }, [this.frame, this.note, this.chip, this.probe.element, this.histogram.element]);
    this.element = make("div", { class: "tile" }, [this.box]);
    if (grid) this.element.append(this.caption());
    this.box.addEventListener("pointerdown", (event) => this.press(event));
    this.box.addEventListener("pointermove", (event) => this.move(event));
    this.box.addEventListener("pointerup", (event) => this.lift(event));
    this.box.addEventListener("pointercancel", () => this.dropGesture());
    this.box.addEventListener("pointerleave", () => this.gesture || this.aim(null));
    this.box.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.element.addEventListener("pointerenter", () => this.view.setCurrent(this.cam));
    this.element.addEventListener("focusin", () => this.view.setCurrent(this.cam));
  }

  caption() {
    this.button = make("button", { type: "button", class: "name", text: this.name, "aria-label": `${this.name}: enlarge`, title: "Enlarge (Enter)", "aria-pressed": "false" });
    this.state = make("span", { class: "state", text: "waiting" });
    this.rate = make("span", { class: "rate" });
    this.button.addEventListener("click", () => this.view.toggleSolo(this.cam));
    return make("div", { class: "caption" }, [this.button, this.state, this.rate]);
  }

  // pictures

  /** Take a picture. One that waits undecoded is superseded. @param {Part} part */
  offer(part) {
    this.waiting?.done(false);
    this.waiting = part;
    this.decode();
  }

  async decode() {
    if (this.decoding || !this.waiting || !this.view.visible) return;
    const part = this.waiting;
    this.waiting = null;
    this.decoding = true;
    const picture = await this.decoded(part);
    this.decoding = false;
    if (!picture) part.done(false);
    else if (this.view.over) picture.bitmap.close();
    else {
      this.supersede();
      this.ready = picture;
      this.view.wantPaint();
    }
    this.decode();
  }

  /** @returns {Promise<?Picture>} null if it is no picture */
  async decoded(part) {
    const began = performance.now();
    try {
      const [bitmap, masks] = await Promise.all([
        bitmapOf(part.bytes ?? new Uint8Array(), part.mime),
        this.overlay.prepare(part.shapes).catch(() => []),
      ]);
      this.view.account.decodes.push((performance.now() - began) * 1000);
      return { part, bitmap, masks };
    } catch {
      return null;
    }
  }

  supersede() {
    this.ready?.bitmap.close();
    this.ready?.part.done(false);
    this.ready = null;
  }

  /** Paint what is ready: picture, place and shapes change together. */
  paint(now) {
    if (!this.ready) return;
    const { part, bitmap, masks } = this.ready;
    this.ready = null;
    this.part = part;
    this.masks = masks;
    this.shown = part.roi ?? [0, 0, ...(this.source ?? [bitmap.width, bitmap.height])];
    this.pixels = [bitmap.width, bitmap.height];
    this.grow(this.shown);
    this.fitCanvas(bitmap);
    this.context.transferFromImageBitmap(bitmap);
    bitmap.close();
    this.follow(now);
    this.layout();
    this.drawShapes();
    this.note.hidden = true;
    this.times.push(now);
    if (part.age_us !== null) this.ages.push(part.age_us / 1000 + now - part.received);
    if (this.times.length > 600) this.times.splice(0, 300);
    if (this.ages.length > 120) this.ages.splice(0, 60);
    this.describe(now);
    if (this.pixel && !this.view.paused && now - this.probed > PROBE_AGAIN_MS) this.sendProbe();
    part.done(true);
  }

  /** The canvas has the picture's own size, for whoever reads it or saves it. */
  fitCanvas({ width, height }) {
    if (this.canvas.width !== width) this.canvas.width = width;
    if (this.canvas.height !== height) this.canvas.height = height;
  }

  drawShapes() {
    if (!this.part || !this.view.overlays) return;
    const all = [0, 0, ...this.sourceSize()];
    this.overlay.draw(this.part.shapes, this.masks, this.shown, this.shown[3] * this.scale, all);
  }

  /** @returns {number} pictures painted in the second that ends now */
  rateNow(now) {
    this.times = this.times.filter((time) => time > now - 1000);
    return this.times.length;
  }

  /** Forget pictures on their way. */
  release() {
    this.waiting?.done(false);
    this.waiting = null;
    this.supersede();
  }

  // what is looked at

  sourceSize() {
    return this.source ?? (this.shown ? [this.shown[0] + this.shown[2], this.shown[1] + this.shown[3]] : [16, 9]);
  }

  /** @returns {Rect} what the frame shows, once the kernel has sent it */
  wanted() {
    return this.roi ?? [0, 0, ...this.sourceSize()];
  }

  /** A picture that shows more than the source has says that the source has become larger. */
  grow([x, y, w, h]) {
    const [width, height] = this.source ?? [0, 0];
    if (x + w > width || y + h > height) this.setSource([Math.max(width, x + w), Math.max(height, y + h)]);
  }

  setSource([width, height]) {
    if (this.source?.[0] === width && this.source?.[1] === height) return;
    this.source = [width, height];
    if (this.roi) this.roi = inside(this.roi, this.source);
    this.view.setAspect(width / height);
    this.layout();
  }

  /** Take over what the kernel shows, unless it has yet to answer what was asked here. */
  follow(now) {
    if (this.gesture) return;
    const answered = near(this.shown, this.wanted());
    if (this.asked !== null && now - this.asked < (answered ? ROI_SETTLED_MS : ROI_GIVEN_UP_MS)) return;
    this.asked = null;
    const [width, height] = this.sourceSize();
    const all = this.shown[2] >= width - 1 && this.shown[3] >= height - 1;
    this.roi = all ? null : this.shown;
    if (answered || !this.actual) return;
    this.actual = false;
    this.view.updateControls();
  }

  /** Look at a part of the source, or at all of it for null. */
  look(roi, actual = false) {
    const size = this.sourceSize();
    const within = roi && inside(roi, size);
    this.roi = within && (within[2] < size[0] || within[3] < size[1]) ? within : null;
    this.actual = actual;
    this.asked = performance.now();
    this.layout();
    this.drawCross();
    this.sendRoi();
    this.view.updateControls();
  }

  /** Show `factor` times as much, with the point that lies at these shares of the frame staying where it is. */
  zoom(factor, u = 0.5, v = 0.5) {
    const [x, y, w, h] = this.wanted();
    const [width, height] = this.sourceSize();
    const least = Math.max(LEAST_ROI / w, LEAST_ROI / h);
    const by = factor < 1 ? Math.min(Math.max(factor, least), 1) : factor;
    const [nw, nh] = [Math.min(w * by, width), Math.min(h * by, height)];
    if (nw === w && nh === h) return;
    this.look([x + u * (w - nw), y + v * (h - nh), nw, nh]);
  }

  zoomActual() {
    const [x, y, w, h] = this.wanted();
    const [width, height] = this.sourceSize();
    const [nw, nh] = this.size.map((css) => Math.floor(css * devicePixelRatio));
    const [rw, rh] = [Math.min(nw, width), Math.min(nh, height)];
    this.look([Math.round(x + (w - rw) / 2), Math.round(y + (h - rh) / 2), rw, rh], true);
  }

  pan(dx, dy) {
    const [x, y, w, h] = this.wanted();
    this.look([x + dx, y + dy, w, h], this.actual);
  }

  resized(width, height) {
    this.size = [width, height];
    if (this.actual && this.source) this.zoomActual();
    this.layout();
    this.drawShapes();
  }

  /** Place the frame in the box, and in the frame the picture there is. */
  layout() {
    const [width, height] = this.size;
    if (!width || !height) return;
    const ratio = devicePixelRatio || 1;
    const [, , w, h] = this.wanted();
    const fit = Math.min(width / w, height / h);
    const scale = this.actual ? Math.min(fit, 1 / ratio) : fit;
    this.scale = scale;
    const snap = (css) => Math.round(css * ratio) / ratio; // whole pixels of the screen, or pictures blur
    const { style } = this.frame;
    style.width = `${snap(w * scale)}px`;
    style.height = `${snap(h * scale)}px`;
    style.left = `${snap((width - w * scale) / 2)}px`;
    style.top = `${snap((height - h * scale) / 2)}px`;
    this.box.classList.toggle("zoomed", this.roi !== null);
    if (!this.shown) return;
    place(this.layer, this.shown, this.wanted());
    // Single pixels are wanted, not a blur between them, once they are large enough to be seen.
    this.canvas.classList.toggle("pixels", (this.shown[2] * scale * ratio) / this.pixels[0] >= 3);
  }

  // pointers

  /** @returns {[number, number]} where a pointer is, as shares of the frame */
  share(event) {
    const { left, top, width, height } = this.frame.getBoundingClientRect();
    return [(event.clientX - left) / (width || 1), (event.clientY - top) / (height || 1)];
  }

  /** @returns {?[number, number]} the source's pixel at these shares of the frame; null beside it */
  pixelAt([u, v]) {
    if (u < 0 || v < 0 || u >= 1 || v >= 1) return null;
    const [x, y, w, h] = this.wanted();
    const [width, height] = this.sourceSize();
    return [clamp(Math.floor(x + u * w), 0, width - 1), clamp(Math.floor(y + v * h), 0, height - 1)];
  }

  press(event) {
    if (event.button !== 0 || this.gesture) return;
    this.box.focus({ preventScroll: true });
    event.preventDefault();
    this.box.setPointerCapture?.(event.pointerId);
    const kind = event.shiftKey ? "draw" : this.roi ? "pan" : "click";
    this.gesture = { kind, from: this.share(event), x: event.clientX, y: event.clientY, start: this.wanted(), moved: false };
  }

  move(event) {
    if (!this.gesture) {
      if (this.view.probing) this.aim(this.pixelAt(this.share(event)));
      return;
    }
    const gesture = this.gesture;
    gesture.moved ||= Math.hypot(event.clientX - gesture.x, event.clientY - gesture.y) >= CLICK_PX;
    if (!gesture.moved) return;
    if (gesture.kind === "draw") this.stretch(event);
    if (gesture.kind === "pan") {
      const [u, v] = this.share(event);
      const [x, y, w, h] = gesture.start;
      this.box.classList.add("panning");
      this.look([x - (u - gesture.from[0]) * w, y - (v - gesture.from[1]) * h, w, h], this.actual);
    }
  }

  /** Draw the rectangle of a new region of interest. */
  stretch(event) {
    const [u, v] = this.share(event).map((share) => clamp(share, 0, 1));
    const [a, b] = this.gesture.from.map((share) => clamp(share, 0, 1));
    this.gesture.drawn = [Math.min(u, a), Math.min(v, b), Math.abs(u - a), Math.abs(v - b)];
    place(this.rubber, this.gesture.drawn, [0, 0, 1, 1]);
    this.rubber.hidden = false;
  }

  lift(event) {
    const gesture = this.gesture;
    if (!gesture) return;
    this.dropGesture();
    if (!gesture.moved && gesture.kind !== "draw") this.view.clicked(this, event);
    if (!gesture.drawn) return;
    const [u, v, du, dv] = gesture.drawn;
    const [x, y, w, h] = gesture.start;
    const drawn = [x + u * w, y + v * h, du * w, dv * h];
    if (drawn[2] >= LEAST_ROI / 2 && drawn[3] >= LEAST_ROI / 2) this.look(whole(drawn, this.sourceSize()));
  }

  dropGesture() {
    this.gesture = null;
    this.rubber.hidden = true;
    this.box.classList.remove("panning");
  }

  wheel(event) {
    if (!event.ctrlKey && !this.view.hasFocus()) return; // the page scrolls
    event.preventDefault();
    const lines = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
    const speed = event.ctrlKey ? 0.006 : 0.0015; // a pinch comes as a wheel of small steps with Ctrl
    const [u, v] = this.share(event).map((share) => clamp(share, 0, 1));
    this.zoom(Math.exp(clamp(event.deltaY * lines * speed, -0.7, 0.7)), u, v);
  }

  // the probe

  /** Aim the probe at a pixel, or at none. */
  aim(pixel, byKey = false) {
    this.pixel = this.view.probing ? pixel : null;
    this.announce = byKey;
    this.drawCross();
    this.probe.element.hidden = !this.pixel;
    if (!this.pixel) return;
    say(this.probe.at, this.pixel.map((v) => String(v).padStart(5)).join(" "));
    this.sendProbe();
  }

  /** Move the probe; what is looked at moves along at its edge. */
  nudge(dx, dy) {
    const [width, height] = this.sourceSize();
    const [x, y, w, h] = this.wanted();
    const [px, py] = this.pixel ?? [Math.floor(x + w / 2), Math.floor(y + h / 2)];
    const pixel = [clamp(px + dx, 0, width - 1), clamp(py + dy, 0, height - 1)];
    const beyond = (at, from, length) => Math.min(at - from, 0) + Math.max(at + 1 - from - length, 0);
    const [bx, by] = [beyond(pixel[0], x, w), beyond(pixel[1], y, h)];
    if (bx || by) this.pan(bx, by);
    this.aim(pixel, true);
  }

  drawCross() {
    const { cross, element } = this.probe;
    cross.hidden = !this.pixel;
    if (!this.pixel) return;
    const [x, y, w, h] = this.wanted();
    place(cross, [...this.pixel, 1, 1], [x, y, w, h]);
    // The panel keeps out of the way of what it tells of.
    element.classList.toggle("right", this.pixel[0] - x < w / 2 && this.pixel[1] - y < h / 2);
  }

  askPixel() {
    if (!this.pixel) return;
    const [x, y] = this.pixel;
    this.probed = performance.now();
    this.view.send("probe", { cam: this.cam, x, y, id: this.view.nextProbe() });
  }

  showProbe(message) {
    if (!this.pixel) return;
    const values = this.probe.show(message);
    if (!this.announce) return;
    this.announce = false;
    this.view.tell(`pixel ${this.pixel.join(", ")}: ${values}`);
  }

  // state

  setStatus(status) {
    this.status = status;
    const [width, height] = [number(status.width), number(status.height)];
    if (width > 0 && height > 0) this.setSource([width, height]);
    const state = text(status.state);
    const why = text(status.text).slice(0, 300);
    const stopped = state !== "" && state !== "live";
    this.element.classList.toggle("stopped", stopped);
    say(this.noteTitle, state === "closed" ? `${this.name} is closed` : state === "error" ? `${this.name} failed` : `waiting for ${this.name} …`);
    say(this.noteText, why);
    this.chip.hidden = !stopped || !this.note.hidden || Boolean(this.state); // a caption says it
    say(this.chip, stopped ? [state, why].filter(Boolean).join(": ") : "");
    if (this.state) {
      say(this.state, state || "waiting");
      mark(this.state, "data-state", state || "waiting");
      mark(this.state, "title", why || null);
    }
    this.describe(performance.now());
  }

  /** Keep the text alternative up to date, at rest. */
  describe(now) {
    if (now - this.labelled < LABEL_MS) return;
    const state = this.view.paused ? "paused" : text(this.status.state);
    const size = this.source ? `${this.source[0]} by ${this.source[1]} pixels` : "";
    const words = [this.name, state, this.part ? size : "no picture yet"].filter(Boolean).join(", ");
    if (this.canvas.getAttribute("aria-label") === words) return;
    this.canvas.setAttribute("aria-label", words);
    this.labelled = now;
  }
}

// --- the line below the picture ----------------------------------------------------------------------------------

/** Figures of how things go. */
class ReadOut {
  constructor() {
    this.figures = new Map(FIGURES.map(([name, label, digits, unit]) => [name, this.figure(label, digits, unit)]));
    const elements = [...this.figures.values()].map(({ element }) => element);
    this.element = make("div", { class: "figures", role: "group", "aria-label": "Figures" }, elements);
  }

  figure(label, digits, unit) {
    const value = make("span", { class: "value" });
    value.style.minWidth = `${digits}ch`;
    const element = make("span", { class: "figure", hidden: true }, [make("span", { text: label }), value, make("span", { text: unit })]);
    return { element, value };
  }

  /** @param {?Tile} tile  the only camera in sight, if there is only one */
  update(tile, status, rate) {
    const values = { ...ofWidget(status), ...(tile ? ofCamera(tile, status, rate) : {}) };
    const all = [];
    for (const [name, { element, value }] of this.figures) {
      element.hidden = !values[name];
      say(value, values[name] ?? "");
      if (values[name]) all.push([...element.children].map((part) => part.textContent).filter(Boolean).join(" "));
    }
    mark(this.element, "title", all.join(" · ") || null); // what has no room is there, too
  }
}

/** @returns {string} the number with so many digits after the point, none for none */
const fixed = (value, digits) => number(value)?.toFixed(digits) ?? "";

/** @returns {Record<string, string>} figures of what all cameras share */
function ofWidget(status) {
  const scale = number(status.scale);
  const quality = fixed(status.quality, 0);
  const encoder = [text(status.encoder), quality && `q${quality}`, scale !== null && Math.abs(scale - 1) > 0.005 ? `×${scale.toFixed(2)}` : ""];
  return {
    encoder: encoder.filter(Boolean).join(" "),
    mbit: fixed(status.mbit, 1),
    rtt: fixed(status.rtt_ms, 0),
    safe: status.safe === true ? "safe rate" : "",
  };
}

/** @returns {Record<string, string>} figures of one camera */
function ofCamera(tile, status, rate) {
  const cam = tile.status;
  const live = tile.part && !tile.view.paused;
  const size = number(cam.width) && number(cam.height) ? `${cam.width}×${cam.height}` : "";
  const lost = [number(cam.dropped), number(cam.skipped)];
  // Since it was published until it was sent, and since it came until it was painted; the way is half of there and back.
  const age = live && tile.ages.length ? median(tile.ages) + (number(status.rtt_ms) ?? 0) / 2 : null;
  return {
    fps: tile.part && (tile.view.paused ? rate : `${rate} fps`),
    age: tile.part && (fixed(age, 0) || "–"),
    lost: lost.some((count) => count !== null) ? lost.map((count) => (count === null ? "–" : grouped(count))).join(" / ") : "",
    seq: tile.part?.seq != null ? `#${tile.part.seq}` : "",
    format: [text(cam.format), size].filter(Boolean).join(" "),
    memory: text(cam.memory),
  };
}

/** What people are told, for a while. */
class Told {
  /** @param {Timers} timers */
  constructor(timers) {
    this.timers = timers;
    this.url = null;
    this.element = make("div", { class: "told", role: "status", "aria-live": "polite" });
  }

  say(words, isError = false) {
    this.show(words.slice(0, 500), isError ? 20_000 : 8000);
    this.element.classList.toggle("error", isError);
  }

  /** Offer a file. It is also saved at once, where front ends let pages do so. */
  offer(bytes, mime, name) {
    this.show(`download ${name}`, 60_000);
    this.url = URL.createObjectURL(new Blob([bytes], { type: mime }));
    const link = make("a", { href: this.url, download: name, text: `download ${name}` });
    this.element.replaceChildren(link);
    link.click();
  }

  show(line, ms) {
    this.end();
    this.element.textContent = line;
    mark(this.element, "title", line || null);
    this.element.classList.remove("error");
    this.callOff = this.timers.after(ms, () => {
      this.end();
      this.element.replaceChildren();
    });
  }

  end() {
    this.callOff?.();
    if (this.url) URL.revokeObjectURL(this.url);
    this.url = null;
  }
}

// --- errors ------------------------------------------------------------------------------------------------------

/** An exception of one camera, folded; it can be put away until there is another. */
class Failure {
  constructor(dismissed) {
    this.summary = make("summary");
    this.trace = make("pre", { tabindex: "0", role: "region", "aria-label": "Traceback" });
    const close = make("button", { type: "button", class: "close", "aria-label": "Dismiss", title: "Dismiss" }, [icon("M4 4l8 8M12 4l-8 8")]);
    this.element = make("div", { class: "failure", hidden: true }, [make("details", {}, [this.summary, this.trace]), close]);
    close.addEventListener("click", () => {
      this.away = this.words;
      this.element.hidden = true;
      dismissed();
    });
  }

  show(name, error) {
    const words = text(object(error).text).slice(0, 100_000);
    this.words = words && `${text(error.where)}\n${words}`;
    if (!this.words) this.away = null;
    this.element.hidden = !this.words || this.words === this.away;
    if (this.element.hidden) return;
    const count = number(error.count);
    const last = words.trimEnd().split("\n").pop().slice(0, 300);
    say(this.summary, `${[name, text(error.where)].filter(Boolean).join(" ")} failed${count > 1 ? ` ${grouped(count)} times` : ""}: ${last}`);
    say(this.trace, words);
  }
}

// --- the view ----------------------------------------------------------------------------------------------------

/** One place on one page where the widget is shown. */
class View {
  /** @param {Model} model  @param {HTMLElement} el */
  constructor(model, el) {
    this.model = model;
    this.id = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
    this.timers = new Timers();
    this.account = new Account(this.timers, (ack) => this.send("ack", ack));
    this.greeted = false; // whether the kernel knows of this view
    this.lost = ""; // why nothing can be said
    this.over = false;
    /** @type {?boolean} */ this.said = null; // what the kernel was told of being in sight
    this.intersects = false;
    this.visible = true;
    this.sent = [0, 0];
    this.paused = false;
    this.recording = false;
    this.status = {};
    this.overlays = true;
    this.probing = false;
    this.solo = null;
    this.current = 0;
    this.downloads = 0;
    this.steps = 0;
    this.awake = null;
    this.probeId = this.firstProbe = Math.floor(Math.random() * 2 ** 30);
    this.aspect = null;
    this.heard = null; // when the kernel last spoke
    this.settled = { paused: 0, recording: 0 }; // until when the page knows better than the status
    this.sendSteps = this.timers.throttled(STEP_MS, () => {
      if (this.steps) this.send("step", { by: clamp(this.steps, -64, 64) });
      this.steps = 0;
    });
    this.build(el);
    this.watch();
    this.wake();
    this.greet();
  }

  // elements

  build(el) {
    this.stage = make("div", { class: "stage" });
    this.veil = make("div", { class: "veil", hidden: true });
    this.rec = make("div", { class: "rec", hidden: true, text: "rec" });
    this.buttons = new Map(COMMANDS.map((command) => [command.id, this.commandButton(command)]));
    const groups = [0, 1, 2, 3, 4].map((group) =>
      make("div", { class: "group" }, COMMANDS.filter((c) => c.group === group).map((c) => this.buttons.get(c.id))));
    this.toolbar = make("div", { class: "toolbar", role: "group", "aria-label": "Controls" }, groups);
    // Like a player's: a click leaves the keyboard with the picture.
    this.toolbar.addEventListener("mousedown", (event) => {
      event.preventDefault();
      this.tile().box.focus({ preventScroll: true });
    });
    this.readOut = new ReadOut();
    this.told = new Told(this.timers);
    this.line = make("div", { class: "line" }, [this.readOut.element, this.told.element]);
    this.failures = make("div", { class: "failures" });
    this.help = make("div", { class: "help", role: "dialog", "aria-label": "Keys", tabindex: "-1", popover: "auto", hidden: !("togglePopover" in HTMLElement.prototype) });
    // A click beside the list closes it, and a click on the button is one: only the browser can tell them apart.
    this.buttons.get("help").popoverTargetElement = this.help;
    this.root = make("div", { class: "cuframes-view", role: "group" }, [
      make("div", { class: "screen" }, [this.stage, this.rec, this.veil]), this.toolbar, this.line, this.failures, this.help,
    ]);
    this.root.addEventListener("keydown", (event) => this.keydown(event));
    this.setNames();
    this.setTraits();
    el.replaceChildren(this.root);
    this.el = el;
  }

  commandButton({ id, label, keys, shown, icon: path }) {
    const button = make("button", { type: "button", "data-command": id, "aria-label": label, title: shown ? `${label} (${shown})` : label }, [icon(path)]);
    const named = keys.map((key) => ({ " ": "Space", "+": "Plus" })[key] ?? key.toUpperCase());
    if (named.length) button.setAttribute("aria-keyshortcuts", named.join(" "));
    const byBrowser = id === "help" && "popoverTargetElement" in button;
    if (!byBrowser) button.addEventListener("click", () => this.command(id));
    return button;
  }

  setNames() {
    for (const tile of this.tiles ?? []) {
      this.sizes?.unobserve(tile.box);
      tile.release();
    }
    this.names = list(this.model.get("names")).map((name, cam) => text(name) || `camera ${cam}`);
    if (!this.names.length) this.names = ["camera"];
    [this.solo, this.current] = [null, -1];
    this.aspect = null;
    this.tiles = this.names.map((name, cam) => new Tile(this, cam, name));
    this.stage.replaceChildren(...this.tiles.map((tile) => tile.element));
    this.failed = this.tiles.map(() => new Failure(() => this.tile().box.focus({ preventScroll: true })));
    this.failures.replaceChildren(...this.failed.map((failure) => failure.element));
    const columns = Math.ceil(Math.sqrt(this.names.length));
    this.root.style.setProperty("--columns", String(columns));
    this.root.classList.toggle("grid", this.grid());
    this.tiles.forEach((tile) => this.sizes?.observe(tile.box));
    this.listKeys();
    this.setCurrent(0);
  }

  setTraits() {
    const width = number(this.model.get("width"));
    this.root.style.width = width > 0 ? `${width}px` : "";
    this.toolbar.hidden = this.model.get("controls") === false;
    mark(this.root, "aria-label", text(this.model.get("label")) || `Live video: ${this.names.join(", ")}`);
  }

  /** The place of pictures has the shape of the first source that is known, and keeps it. */
  setAspect(aspect) {
    if (this.aspect) return;
    this.aspect = clamp(aspect, 0.2, 10);
    this.root.style.setProperty("--aspect", String(this.aspect));
  }

  grid() {
    return this.names.length > 1;
  }

  tile() {
    return this.tiles[this.solo ?? this.current] ?? this.tiles[0];
  }

  /** @returns {Tile|undefined} the camera that a message is about */
  camera(cam) {
    return Number.isInteger(cam) ? this.tiles[cam] : undefined;
  }

  setCurrent(cam) {
    if (this.current === cam) return;
    this.current = cam;
    this.tiles.forEach((tile) => tile.element.classList.toggle("current", tile.cam === cam));
    this.updateControls();
  }

  hasFocus() {
    return this.root.contains(this.root.getRootNode().activeElement);
  }

  // being there

  /**
   * Watch for what outlasts being out of the page.
   *
   * Notebooks take cells that are scrolled away out of the page and put them back later. Then the view says goodbye,
   * lets go of everything but this observer, and comes back with it.
   */
  watch() {
    this.sight = new IntersectionObserver((entries) => {
      this.intersects = entries[entries.length - 1].isIntersecting;
      if (this.root.isConnected) this.wake();
      this.updateSight();
    });
    this.sight.observe(this.root);
    this.sizes = new ResizeObserver((entries) => this.resized(entries));
  }

  wake() {
    if (this.awake || this.over) return;
    this.awake = new AbortController();
    const { signal } = this.awake;
    this.model.on("msg:custom", this.onMessage);
    this.model.on("comm_live_update", this.onLive);
    for (const name of ["names", "controls", "width", "label"]) this.model.on(`change:${name}`, this.onTraits);
    document.addEventListener("visibilitychange", () => this.updateSight(), { signal });
    document.addEventListener("fullscreenchange", () => this.updateControls(), { signal });
    window.addEventListener("pagehide", () => this.leave(), { signal });
    window.addEventListener("pageshow", () => this.greet(), { signal });
    // Shortcuts of JupyterLab and Notebook 7 run before any of ours could: plain keys are ours, those with Ctrl theirs.
    window.addEventListener("keydown", (event) => {
      const own = !event.ctrlKey && !event.metaKey && event.key !== "Enter" && event.key !== "Tab";
      if (!this.root.contains(event.target)) return;
      // The target, too: theirs may be for whatever has the focus, and it is asked before what it is in.
      for (const node of [this.root, event.target]) node.toggleAttribute("data-lm-suppress-shortcuts", own);
    }, { signal, capture: true });
    this.watchRatio(signal);
    this.tiles.forEach((tile) => this.sizes.observe(tile.box));
    this.clock = setInterval(() => this.tick(), READ_OUT_MS);
  }

  watchRatio(signal) {
    if (signal.aborted) return;
    const query = matchMedia(`(resolution: ${devicePixelRatio}dppx)`);
    query.addEventListener("change", () => {
      this.tiles.forEach((tile) => tile.resized(...tile.size));
      this.announceSize();
      this.watchRatio(signal);
    }, { signal, once: true });
  }

  /** Let go of whatever would keep this view alive, or busy. */
  sleep() {
    if (!this.awake) return;
    this.leave();
    this.awake.abort();
    this.awake = null;
    clearInterval(this.clock);
    cancelAnimationFrame(this.painting);
    this.painting = 0;
    this.sizes.disconnect();
    this.model.off("msg:custom", this.onMessage);
    this.model.off("comm_live_update", this.onLive);
    for (const name of ["names", "controls", "width", "label"]) this.model.off(`change:${name}`, this.onTraits);
    this.tiles.forEach((tile) => tile.release());
  }

  end() {
    if (this.over) return;
    this.sleep();
    this.over = true;
    this.timers.end();
    this.sight.disconnect();
    this.told.end();
    this.root.remove();
  }

  /** Say that this view is there, once it has a size. */
  greet() {
    const [w, h] = this.space();
    if (this.greeted || this.lost || !this.awake || !w || !h) return;
    this.greeted = true;
    this.sent = [w, h];
    this.said = null;
    this.sayHello();
    for (const tile of this.tiles) if (tile.histogramOn) this.send("histogram", { cam: tile.cam, on: true });
    if (this.solo !== null) this.send("solo", { cam: this.solo });
    this.updateSight();
  }

  sayHello() {
    const [w, h] = this.sent;
    this.send("hello", this.asText ? { w, h, b64: true } : { w, h });
  }

  /** Buffers get lost on the way here: ask for pictures in base64 instead. */
  askForText() {
    if (this.asText) return;
    this.asText = true;
    this.sayHello();
  }

  leave() {
    this.send("bye", {});
    this.greeted = false;
    this.hiding?.();
    this.hiding = null;
  }

  /** Say whether the view is in sight: at once when it comes, after a moment when it goes. */
  updateSight() {
    this.visible = this.intersects && document.visibilityState !== "hidden";
    if (this.visible) {
      this.hiding?.();
      this.hiding = null;
      this.greet();
      this.sayVisible(true);
      this.tiles.forEach((tile) => tile.decode());
    } else {
      this.hiding ??= this.timers.after(OUT_OF_SIGHT_MS, () => {
        this.hiding = null;
        if (this.root.isConnected) this.sayVisible(false);
        else this.sleep();
      });
    }
  }

  sayVisible(on) {
    if (!this.greeted || this.said === on) return;
    this.said = on;
    this.heard = null;
    this.send("visible", { on });
  }

  /** @returns {[number, number]} pixels of the screen for a picture */
  space() {
    const shown = this.solo === null ? this.tiles : [this.tile()];
    const most = (axis) => Math.round(Math.max(...shown.map((tile) => tile.size[axis])) * (devicePixelRatio || 1));
    return [most(0), most(1)];
  }

  resized(entries) {
    for (const { target, contentRect } of entries) {
      const tile = this.tiles.find((each) => each.box === target);
      if (contentRect.width && contentRect.height) tile?.resized(contentRect.width, contentRect.height);
    }
    this.announceSize();
    this.greet();
  }

  announceSize() {
    this.resizing?.();
    this.resizing = this.timers.after(RESIZE_MS, () => {
      const [w, h] = this.space();
      if (!w || !h || (Math.abs(w - this.sent[0]) < 2 && Math.abs(h - this.sent[1]) < 2)) return;
      this.sent = [w, h];
      this.send("size", { w, h });
    });
  }

  // messages

  send(t, keys) {
    if (!this.greeted || this.lost || this.over) return;
    const unsent = () => this.lost || this.over || this.lose("disconnected");
    try {
      this.model.send({ t, view: this.id, ...keys })?.catch?.(unsent); // some front ends say so later
    } catch {
      unsent();
    }
  }

  /** Nothing more can be said: say so, calmly, and be silent. */
  lose(why) {
    this.lost = why;
    this.greeted = false;
    say(this.veil, why);
    this.veil.hidden = false;
    this.root.classList.add("lost");
  }

  find() {
    this.lost = "";
    this.veil.hidden = true;
    this.root.classList.remove("lost");
    this.greet();
  }

  onMessage = (content, buffers) => {
    if (this.over) return;
    try {
      this.receive(object(content), list(buffers));
    } catch (error) {
      console.warn("cuframes: a message was not understood", error);
    }
  };

  /** The front end noticed that the kernel went, or came back. Its model is found where it calls listeners with itself. */
  onLive = (() => {
    const view = this;
    return function live() {
      const alive = this?.model?.comm_live === true;
      if (!alive) view.lose("disconnected");
      else if (view.lost) view.find();
    };
  })();

  onTraits = () => {
    const names = list(this.model.get("names"));
    if (names.length && names.join("\n") !== this.names.join("\n")) this.setNames();
    this.setTraits();
  };

  receive(message, buffers) {
    if (this.lost && message.t !== "bye") this.find();
    this.hear(performance.now());
    const tile = this.camera(message.cam);
    if (message.t === "frames") this.frames(message, buffers);
    else if (message.t === "status") this.setStatus(object(message.status));
    else if (message.t === "probe" && message.id > this.firstProbe && message.id <= this.probeId) tile?.showProbe(message);
    else if (message.t === "histogram" && tile?.histogramOn) tile.histogram.show(message);
    else if (message.t === "saved") this.saved(message, buffers);
    else if (message.t === "told") this.tell(text(message.text), message.level === "error");
    else if (message.t === "bye") this.lose(text(message.text) || "closed");
  }

  frames(message, buffers) {
    const received = performance.now();
    const n = number(message.n);
    if (this.account.isPast(n)) return;
    let bytes = 0;
    const parts = [];
    for (const [i, raw] of list(message.parts).map(object).entries()) {
      const data = payload(raw, buffers[i]);
      if (!data && raw.b64 !== true) this.askForText();
      bytes += raw.b64 === true ? text(raw.data).length : data?.byteLength ?? 0;
      const tile = this.camera(raw.cam ?? 0);
      if (tile) parts.push([tile, raw, data]);
    }
    const done = n > 0
      ? this.account.received(n, bytes, message.ack === true, parts.length)
      : () => {};
    for (const [tile, raw, data] of parts) {
      tile.offer({
        seq: number(raw.seq),
        roi: rect(raw.roi),
        mime: MIMES.has(raw.mime) ? raw.mime : "",
        age_us: number(raw.age_us),
        shapes: list(raw.shapes).slice(0, MOST_SHAPES).map(object),
        bytes: data,
        received,
        done,
      });
    }
    if (message.status) this.setStatus(object(message.status));
  }

  wantPaint() {
    this.painting ||= requestAnimationFrame(() => {
      this.painting = 0;
      const now = performance.now();
      for (const tile of this.tiles) tile.paint(now);
    });
  }

  saved(message, buffers) {
    const name = text(message.name) || "snapshot";
    this.tell(`saved ${text(message.path) || name}`);
    const bytes = payload(message, buffers[0]);
    if (!bytes || !this.downloads) return; // another view's
    this.downloads -= 1;
    this.told.offer(bytes, text(message.mime), name);
  }

  tell(words, isError = false) {
    this.told.say(words, isError);
  }

  // status

  setStatus(status) {
    this.status = status;
    const cams = list(status.cams).map(object);
    this.tiles.forEach((tile, i) => {
      if (!cams[i]) return;
      tile.setStatus(cams[i]);
      this.failed[i].show(this.grid() ? tile.name : "", cams[i].error);
    });
    const now = performance.now();
    for (const key of ["paused", "recording"]) {
      if (typeof status[key] === "boolean" && now >= this.settled[key]) this[key] = status[key];
    }
    this.updateControls();
  }

  /** Take over what people just asked for, until the kernel had time to say the same. */
  presume(key, value) {
    this[key] = value;
    this.settled[key] = performance.now() + 1000;
    this.updateControls();
  }

  updateControls() {
    const tile = this.tile();
    if (!tile || !this.buttons) return;
    const pressed = (id, on) => mark(this.buttons.get(id), "aria-pressed", String(Boolean(on)));
    pressed("actual", tile.actual);
    pressed("probe", this.probing);
    pressed("histogram", tile.histogramOn);
    pressed("overlays", !this.overlays);
    pressed("record", this.recording);
    pressed("fullscreen", this.isFullScreen());
    const play = this.buttons.get("play");
    const label = this.paused ? "Play" : "Pause";
    mark(play, "aria-label", label);
    mark(play, "title", `${label} (Space or K)`);
    mark(play.querySelector("path"), "d", this.paused ? PLAY_ICON : COMMANDS[1].icon);
    this.buttons.get("record").hidden = this.status.can_record !== true;
    this.buttons.get("fullscreen").hidden = !document.fullscreenEnabled;
    this.rec.hidden = !this.recording;
    this.root.classList.toggle("no-overlays", !this.overlays);
    this.root.classList.toggle("probing", this.probing);
  }

  hear(now) {
    if (this.quiet) say(this.veil, "");
    if (this.quiet) this.veil.hidden = true;
    this.quiet = false;
    this.heard = now;
  }

  tick() {
    const now = performance.now();
    if (this.heard !== null && this.said && !this.lost && now - this.heard > SILENCE_MS) {
      this.quiet = true;
      say(this.veil, "no word from the kernel");
      this.veil.hidden = false;
      this.heard = now;
      this.sayHello(); // it may have given this view up; and again after as long
    }
    if (!this.visible) return;
    for (const tile of this.tiles) tile.describe(now);
    this.updateFigures(now);
  }

  updateFigures(now) {
    const alone = !this.grid() || this.solo !== null;
    for (const tile of this.tiles) {
      const published = fixed(tile.status.fps, 1);
      const rate = this.paused ? "paused" : `${tile.rateNow(now)}${published && ` / ${published}`}`;
      if (tile.rate) say(tile.rate, rate);
      if (tile === this.tile()) this.readOut.update(alone ? tile : null, this.status, rate);
      tile.ages = tile.ages.slice(-30);
    }
  }


  // commands

  command(id) {
    const tile = this.tile();
    const act = {
      play: () => this.play(this.paused),
      back: () => this.step(-1),
      forward: () => this.step(1),
      snapshot: () => this.snapshot(tile),
      record: () => this.record(!this.recording),
      fit: () => tile.look(null),
      actual: () => (tile.actual ? tile.look(null) : tile.zoomActual()),
      in: () => tile.zoom(1 / 1.25),
      out: () => tile.zoom(1.25),
      probe: () => this.probe(!this.probing),
      histogram: () => this.setHistogram(tile, !tile.histogramOn),
      overlays: () => this.showOverlays(!this.overlays),
      fullscreen: () => this.fullScreen(),
      help: () => this.showHelp(),
    }[id];
    act?.();
  }

  play(on) {
    this.presume("paused", !on);
    this.send(on ? "play" : "pause", {});
  }

  step(by) {
    this.presume("paused", true);
    this.steps += by;
    this.sendSteps();
  }

  snapshot(tile) {
    this.downloads += 1;
    this.send("snapshot", { cam: tile.cam, download: true });
  }

  record(on) {
    if (this.status.can_record !== true) return;
    this.presume("recording", on);
    this.send("record", { on });
  }

  probe(on) {
    this.probing = on;
    this.tiles.forEach((tile) => tile.aim(null));
    if (on) this.tile().nudge(0, 0);
    this.updateControls();
  }

  nextProbe() {
    this.probeId += 1;
    return this.probeId;
  }

  setHistogram(tile, on) {
    tile.histogramOn = on;
    tile.histogram.element.hidden = !on;
    this.send("histogram", { cam: tile.cam, on });
    this.updateControls();
  }

  showOverlays(on) {
    this.overlays = on;
    this.tiles.forEach((tile) => tile.drawShapes());
    this.updateControls();
  }

  isFullScreen() {
    return this.root.getRootNode().fullscreenElement === this.root; // in a shadow tree the document names its host
  }

  fullScreen() {
    const asked = this.isFullScreen() ? document.exitFullscreen() : this.root.requestFullscreen?.();
    asked?.catch(() => this.tell("full screen is not allowed here"));
  }

  /** List the keys, or put the list away: for the keyboard, since browsers do it for the button. */
  showHelp() {
    if (this.help.togglePopover) this.help.togglePopover();
    else this.help.hidden = !this.help.hidden;
  }

  helpIsOpen() {
    return this.help.togglePopover ? this.help.matches(":popover-open") : !this.help.hidden;
  }

  listKeys() {
    const rows = COMMANDS.filter((c) => c.shown).map((c) => [c.shown, c.id === "play" ? "play or pause" : c.label.toLowerCase()]);
    const all = [...rows, ...GESTURES, ...(this.grid() ? GRID_GESTURES : [])];
    this.help.replaceChildren(make("dl", {}, all.flatMap(([keys, does]) => [make("dt", { text: keys }), make("dd", { text: does })])));
  }

  toggleSolo(cam) {
    this.solo = this.solo === null ? cam : null;
    if (this.solo !== null) this.setCurrent(cam);
    for (const tile of this.tiles) {
      const alone = tile.cam === this.solo;
      tile.element.hidden = this.solo !== null && !alone;
      tile.box.tabIndex = alone ? 0 : -1;
      mark(tile.button, "aria-pressed", String(alone));
      mark(tile.button, "aria-label", alone ? `${tile.name}: back to all` : `${tile.name}: enlarge`);
      mark(tile.button, "title", alone ? "Back to all (Esc)" : "Enlarge (Enter)");
    }
    this.root.classList.toggle("solo", this.solo !== null);
    this.send("solo", { cam: this.solo });
    this.tile().box.focus({ preventScroll: true });
    this.updateControls();
  }

  /** A picture was clicked, not dragged. */
  clicked(tile) {
    if (this.grid() && this.solo === null) this.toggleSolo(tile.cam);
  }

  // keys

  keydown(event) {
    if (event.defaultPrevented || event.isComposing || event.ctrlKey || event.metaKey) return;
    if (event.target.closest("input, textarea, select, [contenteditable]")) return;
    const { key } = event;
    const pressing = [" ", "Enter"].includes(key) && event.target.closest("button, summary, a");
    if (pressing || ["Tab", "Shift", "Alt", "AltGraph", "CapsLock", "Dead", "Process", "Unidentified"].includes(key)) return;
    if (this.ownKey(event)) {
      event.preventDefault();
      event.stopPropagation();
      return;
    }
    const mods = ["Alt", "Control", "Meta", "Shift"].filter((mod) => event.getModifierState(mod));
    if (!event.repeat) this.send("key", { key: key.slice(0, 32), mods });
  }

  /** @returns {boolean} whether the viewer had a use for the key */
  ownKey(event) {
    const { key, shiftKey } = event;
    if (event.altKey) return false;
    const arrow = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[key];
    if (arrow) return this.arrow(arrow, shiftKey);
    if (key === "Escape") return this.escape();
    const tile = this.tiles.find((each) => each.box === event.target);
    if (key === "Enter" && tile && this.grid() && !shiftKey) {
      this.toggleSolo(tile.cam);
      return true;
    }
    const plain = key.length === 1 && !(shiftKey && /[a-z]/i.test(key)) ? key.toLowerCase() : "";
    const command = plain && COMMANDS.find(({ keys }) => keys.includes(plain));
    if (!command || this.buttons.get(command.id).hidden) return false;
    if (!event.repeat || command.held) this.command(command.id);
    return true;
  }

  arrow([dx, dy], far) {
    const tile = this.tile();
    if (this.probing) tile.nudge(dx * (far ? 10 : 1), dy * (far ? 10 : 1));
    else if (far && tile.roi) tile.pan((dx * tile.roi[2]) / 8, (dy * tile.roi[3]) / 8);
    else if (dx && !far && this.paused) this.step(dx);
    else return false;
    return true;
  }

  escape() {
    const tile = this.tile();
    if (tile.gesture) tile.dropGesture();
    else if (this.helpIsOpen()) this.showHelp();
    else if (this.solo !== null) this.toggleSolo(this.solo);
    else if (this.probing) this.probe(false);
    else return false;
    return true;
  }
}

export default {
  /** @param {{model: Model, el: HTMLElement}} context */
  render({ model, el }) {
    const view = new View(model, el);
    return () => view.end();
  },
};
