// Reckons sums of blobs beside the page: `{ number, blob }` is answered by `{ number, sum }`, or by `{ number, trouble }` where it cannot be read.
// A blob that is handed over is not copied; what `sums.js` on the page waits for, it finds by the number.
import { crc32Of } from "./crc32.js";

addEventListener("message", async ({ data: { number, blob } }) => {
  try {
    postMessage({ number, sum: await crc32Of(blob) });
  } catch (error) {
    postMessage({ number, trouble: error.message });
  }
});
