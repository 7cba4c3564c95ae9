// The map, in a separate frame. It receives numbers and colours, but no texts of users.
(() => {
  const plot = document.getElementById("plot");
  const home = window.parent;
  let ready = false, count = 0, dark = false, waiting = null, painting = false;
  const send = message => home.postMessage(message, location.origin);

  function layout() {
    const bare = { visible: false, showgrid: false, zeroline: false };
    return {
      margin: { l: 0, r: 0, t: 0, b: 0 }, xaxis: bare, yaxis: { ...bare, scaleanchor: "x" },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", dragmode: "lasso",
      showlegend: false, hovermode: "closest", uirevision: 1,
      modebar: { color: dark ? "#bbb" : "#666", activecolor: dark ? "#6cb1ff" : "#0b5cad", bgcolor: "rgba(0,0,0,0)", orientation: "v" },
    };
  }

  // A ring of 16 pixels around the current sample. It is a shape, which can move without drawing all points again.
  function ring(at) {
    if (!at) return [];
    const pixels = { xsizemode: "pixel", ysizemode: "pixel", xanchor: at[0], yanchor: at[1], x0: -8, x1: 8, y0: -8, y1: 8 };
    return [{ type: "circle", xref: "x", yref: "y", ...pixels, line: { width: 2, color: dark ? "#fff" : "#000" } }];
  }

  async function draw({ x, y, dark: night, at }) {
    count = x.length;
    dark = night;
    const size = count < 600 ? 9 : count < 3000 ? 7 : count < 10000 ? 5 : 4;
    const points = { type: "scattergl", mode: "markers", x, y, hoverinfo: "none",
      marker: { size, color: "#9aa0a6", line: { width: 0 } },
      selected: { marker: { opacity: 1 } }, unselected: { marker: { opacity: 0.35 } } };
    await Plotly.newPlot(plot, [points], { ...layout(), shapes: ring(at) }, {
      responsive: true, displaylogo: false, scrollZoom: true,
      modeBarButtons: [["lasso2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"]] });
    plot.on("plotly_click", event => {
      if (event.points.length) send({ kind: "pick", i: event.points[0].pointIndex });
    });
    plot.on("plotly_selected", event => {
      const chosen = event ? event.points.map(point => point.pointIndex) : [];
      send({ kind: "select", chosen });
    });
    plot.on("plotly_deselect", () => send({ kind: "select", chosen: [] }));
    ready = true;
    send({ kind: "drawn" });
  }

  // Update the colours and the ring together. If several requests arrive during an update, only the last one is drawn.
  async function paint(message) {
    waiting = message;
    if (!ready || painting) return;
    painting = true;
    while (waiting) {
      const { shade, palette, at, number } = waiting;
      waiting = null;
      const colours = Array.from(shade, value => palette[value]);
      await Plotly.update(plot, { "marker.color": [colours] }, { shapes: ring(at) }, [0]);
      send({ kind: "painted", number });
    }
    painting = false;
  }

  async function curve({ x, y, low, high, dark: night }) {
    dark = night;
    const ink = dark ? "#e6e9ec" : "#1b1f24", axis = { color: ink, gridcolor: dark ? "#39414a" : "#d0d7de" };
    const line = { x, y, type: "scatter", mode: "lines+markers", line: { color: "#4c78a8" },
      error_y: { type: "data", symmetric: false, array: high.map((top, i) => top - y[i]), arrayminus: low.map((bottom, i) => y[i] - bottom), thickness: 1, width: 3 },
      hovertemplate: "%{x} labels: %{y:.1%}<extra></extra>" };
    await Plotly.react(plot, [line], { margin: { l: 55, r: 10, t: 10, b: 45 }, showlegend: false,
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: ink },
      xaxis: { ...axis, title: { text: "labels" }, rangemode: "tozero" },
      yaxis: { ...axis, tickformat: ".1~%", title: { text: "accuracy" } } },
      { responsive: true, displayModeBar: false });
  }

  const acts = {
    draw, paint, curve,
    mark: ({ at }) => ready && !painting && Plotly.relayout(plot, { shapes: ring(at) }),
    clear: () => ready && Plotly.restyle(plot, { selectedpoints: [null] }, [0]),
    choose: ({ chosen }) => { if (ready) { Plotly.restyle(plot, { selectedpoints: [chosen] }, [0]); send({ kind: "select", chosen }); } },
  };
  addEventListener("message", event => {
    if (event.source !== home || event.origin !== location.origin) return;
    const act = acts[event.data.act];
    if (act) act(event.data);
  });
  send({ kind: "ready" });
})();
