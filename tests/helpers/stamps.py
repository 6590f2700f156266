"""A number in the pixels of a frame: what is on screen says which frame it is.

A row of squares along the upper edge: white, black, then the bits of the number, lowest first, then
their parity. Squares are large enough to survive JPEG and scaling.
"""

__all__ = ["BITS", "JAVASCRIPT", "write"]

BITS = 20
SQUARE = 24  #: pixels of a 1080p frame
CELLS = BITS + 3
MARGIN = 8


def write(luma, number):
    """Write `number` into a luma plane, sized as the picture is."""
    k = luma.shape[1] / 1920
    top, bottom = round(MARGIN * k), round((MARGIN + SQUARE) * k)
    bits = [number >> i & 1 for i in range(BITS)]
    cells = [1, 0, *bits, sum(bits) & 1]
    for i, bit in enumerate(cells):
        left, right = (round((MARGIN + at * SQUARE) * k) for at in (i, i + 1))
        luma[top:bottom, left:right] = 235 if bit else 16


JAVASCRIPT = (
    f"""
globalThis.STAMP = {{bits: {BITS}, square: {SQUARE}, cells: {CELLS}, margin: {MARGIN}}};
"""
    """
globalThis.readStamp = function (ctx, source, sourceWidth, sourceHeight) {
  const k = sourceWidth / 1920, w = STAMP.cells;
  ctx.imageSmoothingEnabled = false;
  ctx.drawImage(source, STAMP.margin * k, (STAMP.margin + STAMP.square / 4) * k,
    STAMP.cells * STAMP.square * k, (STAMP.square / 2) * k, 0, 0, w * 5, 1);
  const data = ctx.getImageData(0, 0, w * 5, 1).data;
  const bit = (i) => data[(i * 5 + 2) * 4 + 1] > 128 ? 1 : 0;
  if (!bit(0) || bit(1)) return -1;
  let n = 0, parity = 0;
  for (let i = 0; i < STAMP.bits; i++) { const b = bit(2 + i); n += b * 2 ** i; parity ^= b; }
  return parity === bit(2 + STAMP.bits) ? n : -1;
};
"""
)
