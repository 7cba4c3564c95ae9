// All samples as a list, the most doubtful first: the way to label many without a mouse.
import { $, ask, dot, get, make, own, percent, showSample } from "./parts-of-page.js";
import { known, label } from "./studio.js";

let start = 0;

export function setUpList() {
  $("listClass").addEventListener("change", () => { start = 0; drawList(); });
  $("listMore").addEventListener("click", () => { start += 40; drawList(true); });
  $("listLabel").addEventListener("click", async () => {
    const ticked = [...$("rows").querySelectorAll("input:checked")].map(box => Number(box.value));
    if (!ticked.length) return;
    const name = await ask(`Label ${ticked.length} samples`, "Class", "", known.classes);
    if (name) { await label(name, ticked); start = 0; drawList(); }
  });
}

export async function drawList(more = false) {
  const wanted = $("listClass").value;
  const options = ["", ...known.classes].map(name => { const option = make("option", { value: name }); option.textContent = name || "all, most doubtful first"; return option; });
  $("listClass").replaceChildren(...options);
  $("listClass").value = wanted;
  const found = await get("list", wanted ? { class: wanted, start, n: 40 } : { start, n: 40 });
  const rows = found.map(sample => {
    const box = make("input", { type: "checkbox", value: sample.i, "aria-label": `Choose ${sample.id}` });
    const what = make("span", { class: "what", dir: "auto" });
    what.textContent = sample.text?.slice(0, 160) ?? sample.id;
    const name = make("span", { class: "what" }, ...(sample.given ? [own(sample.given), " (given)"] : sample.suggestion ? [own(sample.suggestion), ` ${percent(sample.sure)}`] : []));
    return make("li", {}, box, sample.picture ? showSample(sample) : null, what, dot(known.classes.indexOf(sample.given ?? sample.suggestion)), name);
  });
  if (more) $("rows").append(...rows); else $("rows").replaceChildren(...rows);
}
