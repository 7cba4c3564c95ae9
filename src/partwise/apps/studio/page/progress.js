// How good it is, with an interval; whether more labels would pay; labels that look wrong.
import { $, get, make, own, percent } from "./parts-of-page.js";
import { label, showDetail } from "./studio.js";

const frame = $("curve");
let ready = false, last = null;
addEventListener("message", event => {
  if (event.origin === location.origin && event.source === frame.contentWindow && event.data.kind === "ready") { ready = true; drawCurve(); }
});

function drawCurve() {
  if (ready && last) frame.contentWindow.postMessage({ act: "curve", ...last }, location.origin);
}

export async function drawProgress(dark) {
  const found = await get("progress");
  $("enough").textContent = found.text;
  const { x, y, low, high } = found.curve;
  last = { x, y, low, high, dark };
  drawCurve();
  $("perClass").tBodies[0].replaceChildren(...found.classes.map(row => {
    const name = make("th", { scope: "row", dir: "auto" });
    name.textContent = row.name;
    return make("tr", {}, name, make("td", {}, String(row.labels)), make("td", {}, percent(row.right)), make("td", {}, String(row.answer)));
  }));
  $("contradicted").replaceChildren(...found.contradicted.map(entry => {
    const text = make("span", {}, own(entry.id), ": given ", own(entry.given), ", the rest says ", own(entry.rest), ` (${percent(entry.sure)}) `);
    return make("li", {}, text, make("button", { onclick: () => { document.getElementById("tab-label").click(); showDetail(entry.i); } }, "Look"),
      make("button", { onclick: () => label(entry.rest, [entry.i]).then(() => drawProgress(dark)) }, "Change"));
  }));
}
