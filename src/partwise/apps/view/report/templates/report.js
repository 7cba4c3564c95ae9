// Tabs, light and dark theme, and the tooltip of the map. Plotly draws the charts.
"use strict";
(async () => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const figures = read("figures"), points = read("points"), templates = read("templates");
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const theme = () => root.dataset.theme || (system.matches ? "dark" : "light");
  // List the buttons, because the default list of plotly may contain one that uploads the chart.
  const buttons = [["toImage"], ["zoom2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"]];
  const options = (name) => ({ displaylogo: false, responsive: true, plotlyServerURL: "",
    displayModeBar: name === "map", modeBarButtons: buttons });
  const charts = new Map();  // charts that have been drawn

  // The script of plotly is compressed. A browser that cannot unpack it shows everything else.
  const unpack = async () => {
    const packed = atob(document.getElementById("plotly").textContent);
    const bytes = Uint8Array.from(packed, (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const code = document.createElement("script");
    code.textContent = await new Response(stream).text();
    document.head.append(code);
  };
  const ready = await unpack().then(() => true, () => false);

  const draw = (box, look, width) => {
    const figure = figures[box.dataset.figure];
    const layout = { ...figure.layout, template: templates[look] };
    const names = layout.xaxis && layout.xaxis.ticktext;
    if (names) {  // if names do not fit next to each other, rotate them, so that none is cut
      const upright = 7 * names.join("").length + 14 * names.length > 0.65 * (width || box.clientWidth);
      layout.xaxis = { ...layout.xaxis, tickangle: upright ? -90 : 0 };
    }
    if (width) Object.assign(layout, { width, autosize: false });
    else if (box.dataset.figure === "map" && box.clientWidth < 640) {
      // on a phone, place the legend below the map
      Object.assign(layout, { margin: { l: 8, r: 8, t: 32, b: 8 }, legend:
        { ...layout.legend, orientation: "h", x: 0, y: -0.02, yanchor: "top", maxheight: 0.3 } });
    }
    box.style.height = `${layout.height}px`;  // otherwise plotly shrinks it when the window changes
    Plotly.react(box, figure.data, layout, options(box.dataset.figure));
    if (!charts.has(box)) { charts.set(box, true); if (box.dataset.figure === "map") listen(box); }
  };
  const redraw = (look = theme(), width) => charts.forEach((_, box) => draw(box, look, width));
  const drawIn = (panel) => ready && panel.querySelectorAll("[data-figure]").forEach((box) => {
    if (!charts.has(box)) draw(box, theme()); else Plotly.Plots.resize(box);
  });

  // Tabs. Without this script, all sections are shown below each other.
  const tabs = [...document.querySelectorAll('[role="tab"]')];
  const show = (tab, focus) => {
    for (const other of tabs) {
      const current = other === tab;
      other.setAttribute("aria-selected", current);
      other.tabIndex = current ? 0 : -1;
      document.getElementById(other.getAttribute("aria-controls")).classList.toggle("current", current);
    }
    if (focus) tab.focus();
    hide();
    drawIn(document.getElementById(tab.getAttribute("aria-controls")));
  };
  tabs.forEach((tab, i) => {
    tab.addEventListener("click", () => show(tab));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step) show(tabs[(i + step + tabs.length) % tabs.length], true);
    });
  });

  // The map: colours and tooltip.
  const tip = document.getElementById("tip");
  const hide = () => { tip.style.display = "none"; };
  const line = (text, tag = "p") => {
    const node = document.createElement(tag);
    node.textContent = text;  // the text comes from the data, so it must not be used as HTML
    tip.append(node);
  };
  const listen = (box) => {
    box.on("plotly_hover", ({ points: [hit], event }) => {
      const point = points[hit.customdata];
      const place = () => {
        const { clientX: x, clientY: y } = event, { offsetWidth: w, offsetHeight: h } = tip;
        tip.style.left = `${Math.max(4, x + 16 + w > innerWidth ? x - w - 16 : x + 16)}px`;
        tip.style.top = `${Math.max(4, Math.min(y + 16, innerHeight - h - 4))}px`;
      };
      tip.replaceChildren();
      if (point.image) {
        const image = new Image();
        image.src = point.image;
        image.alt = "";
        image.onload = place;  // the height of the image is known now
        tip.append(image);
      }
      line(point.id, "b");
      if (point.text) line(point.text);
      const margin = point.confidence === null ? "" : `, ${tip.dataset.sure} ${point.confidence}`;
      line(`${tip.dataset.group} ${point.cluster}${margin}`);
      if (point.label !== null) line(`label ${point.label}`);
      if (point.parts) line(`parts ${point.parts}`);
      tip.style.display = "block";
      place();
    });
    box.on("plotly_unhover", hide);
    document.querySelectorAll("[data-view]").forEach((button) => button.addEventListener("click", () => {
      const view = button.dataset.view;
      document.querySelectorAll("[data-view]").forEach((b) => b.setAttribute("aria-pressed", b === button));
      for (const trace of figures.map.data) trace.visible = trace.meta === view;
      draw(box, theme());
    }));
  };

  // Light and dark theme. Printing is always light.
  const name = () => { button.textContent = theme() === "dark" ? "Light" : "Dark"; };
  const button = document.getElementById("theme");
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = theme() === "dark" ? "light" : "dark";
    name();
    redraw();
  });
  system.addEventListener("change", () => { name(); redraw(); });
  addEventListener("beforeprint", () => {
    if (ready) document.querySelectorAll("[data-figure]").forEach((box) => draw(box, "light", 700));
  });
  addEventListener("afterprint", () => redraw());
  name();
  if (!ready) document.querySelectorAll("[data-figure]").forEach((box) => {
    box.textContent = "This browser is too old to draw this chart.";
  });
  document.body.classList.add("tabbed");
  show(tabs[0]);
})();
