// The map, in a frame of its own. It is sent numbers and colours, never a user's text.
(() => {
  const plot = document.getElementById("plot");
  const home = window.parent;
  let ready = false, count = 0;
  const send = message => home.postMessage(message, location.origin);

  function layout(dark) {
    const bare = { visible: false, showgrid: false, zeroline: false };
    return {
      margin: { l: 0, r: 0, t: 0, b: 0 }, xaxis: bare, yaxis: { ...bare, scaleanchor: "x" },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", dragmode: "lasso",
      showlegend: false, hovermode: "closest", uirevision: 1,
      modebar: { color: dark ? "#bbb" : "#666", bgcolor: "rgba(0,0,0,0)", orientation: "v" },
    };
  }

  async function draw({ x, y, dark }) {
    count = x.length;
    const size = count < 600 ? 9 : count < 3000 ? 7 : count < 10000 ? 5 : 4;
    const points = { type: "scattergl", mode: "markers", x, y, hoverinfo: "none",
      marker: { size, color: new Float32Array(count), line: { width: 0 } },
      selected: { marker: { opacity: 1 } }, unselected: { marker: { opacity: 0.35 } } };
    const mark = { type: "scattergl", mode: "markers", x: [], y: [], hoverinfo: "skip",
      marker: { size: size + 8, color: "rgba(0,0,0,0)", line: { width: 2, color: dark ? "#fff" : "#000" } } };
    await Plotly.newPlot(plot, [points, mark], layout(dark), {
      responsive: true, displaylogo: false, scrollZoom: true,
      modeBarButtons: [["lasso2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"]] });
    plot.on("plotly_click", event => {
      const at = event.points.find(point => point.curveNumber === 0);
      if (at) send({ kind: "pick", i: at.pointIndex });
    });
    plot.on("plotly_selected", event => {
      const chosen = event ? event.points.filter(p => p.curveNumber === 0).map(p => p.pointIndex) : [];
      send({ kind: "select", chosen });
    });
    plot.on("plotly_deselect", () => send({ kind: "select", chosen: [] }));
    ready = true;
    send({ kind: "drawn" });
  }

  async function paint({ colour, scale, most, number }) {
    if (!ready) return;
    await Plotly.restyle(plot, { "marker.color": [colour], "marker.colorscale": [scale],
      "marker.cmin": 0, "marker.cmax": Math.max(1, most), "marker.showscale": false }, [0]);
    send({ kind: "painted", number });
  }

  async function curve({ x, y, low, high, dark }) {
    const ink = dark ? "#e6e9ec" : "#1b1f24", axis = { color: ink, gridcolor: dark ? "#39414a" : "#d0d7de" };
    const band = { x: [...x, ...[...x].reverse()], y: [...high, ...[...low].reverse()], fill: "toself",
      line: { width: 0 }, fillcolor: "rgba(76,120,168,.25)", hoverinfo: "skip", type: "scatter", mode: "lines" };
    const line = { x, y, type: "scatter", mode: "lines+markers", line: { color: "#4c78a8" },
      hovertemplate: "%{x} labels: %{y:.1%}<extra></extra>" };
    await Plotly.react(plot, [band, line], { margin: { l: 55, r: 10, t: 10, b: 45 }, showlegend: false,
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: ink },
      xaxis: { ...axis, title: { text: "labels" } },
      yaxis: { ...axis, tickformat: ".0%", title: { text: "right names" } } },
      { responsive: true, displayModeBar: false });
  }

  const acts = {
    draw, paint, curve,
    mark: ({ x, y }) => ready && Plotly.restyle(plot, { x: [x], y: [y] }, [1]),
    clear: () => ready && Plotly.restyle(plot, { selectedpoints: [null] }, [0]),
    look: ({ dark }) => ready && Plotly.relayout(plot, layout(dark)),
    choose: ({ chosen }) => { if (ready) { Plotly.restyle(plot, { selectedpoints: [chosen] }, [0]); send({ kind: "select", chosen }); } },
  };
  addEventListener("message", event => {
    if (event.source !== home || event.origin !== location.origin) return;
    const act = acts[event.data.act];
    if (act) act(event.data);
  });
  send({ kind: "ready" });
})();
