// A list of all samples, the most doubtful first, in which many samples can be labelled without a mouse.
import { $, ask, dot, get, make, own, percent, shortRow, showSample } from "./elements.js";
import { known, label, rename, unlabel } from "./studio.js";

let start = 0, latest = 0, seen = 0;

const ticked = () => [...$("rows").querySelectorAll("input:checked")].map(box => Number(box.value));
const again = () => { start = 0; drawList(); };

export function setUpList() {
  $("listClass").addEventListener("change", again);
  $("listSearch").addEventListener("input", again);
  $("listMore").addEventListener("click", () => { start += 40; drawList(true); });
  $("listLabel").addEventListener("click", async () => {
    const chosen = ticked(), version = seen;
    if (!chosen.length) return;
    const name = await ask(`Label ${chosen.length} samples`, "Class", "", known.classes);
    if (name) { await label(name, chosen, version); again(); }
  });
  $("listTake").addEventListener("click", async () => {
    const chosen = ticked().filter(i => known.given[i]);
    if (chosen.length) { await unlabel(chosen, seen); again(); }
  });
  $("classRename").addEventListener("click", async () => {
    const name = $("listClass").value;
    const to = await ask(`Rename ${name}`, "New name; the name of another class merges both", name, known.classes);
    if (to && to !== name) { await rename(name, to); $("listClass").value = ""; again(); }
  });
  $("classDelete").addEventListener("click", async () => {
    const name = $("listClass").value, n = known.counts[name]?.labels ?? 0;
    const sure = await ask(`Delete ${name} and remove its ${n} labels?`, "Type the name of the class", "");
    if (sure === name) { await rename(name, null); $("listClass").value = ""; again(); }
  });
}

export async function drawList(more = false) {
  const wanted = $("listClass").value;
  const options = ["", ...known.classes].map(name => { const option = make("option", { value: name }); option.textContent = name || "all, most doubtful first"; return option; });
  $("listClass").replaceChildren(...options);
  $("listClass").value = known.classes.includes(wanted) ? wanted : "";
  const shown = $("listClass").value, search = $("listSearch").value.trim();
  $("classRename").disabled = $("classDelete").disabled = !shown;
  const number = ++latest, found = await get("list", { ...(shown ? { class: shown } : {}), ...(search ? { search } : {}), start, n: 40 });
  if (number !== latest) return; // a later request has been sent
  if (!more) seen = found.version;
  $("listMore").hidden = found.samples.length < 40;
  const rows = found.samples.map(sample => {
    const box = make("input", { type: "checkbox", value: sample.i, "aria-label": `Choose ${sample.id}` });
    const content = make("span", { class: "content", dir: "auto" });
    content.textContent = sample.text?.slice(0, 160) ?? (sample.values ? shortRow(sample) : sample.id);
    const name = make("span", { class: "content" }, ...(sample.given ? [own(sample.given), " (given)"] : sample.suggestion ? [own(sample.suggestion), ` ${percent(sample.probability)}`] : []));
    return make("li", {}, box, sample.picture ? showSample(sample) : null, content, dot(known.classes.indexOf(sample.given ?? sample.suggestion)), name);
  });
  if (more) $("rows").append(...rows); else $("rows").replaceChildren(...rows);
}
