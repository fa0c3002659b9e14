// The charts of one track.  All data is in the page; texts go into it as text alone.
(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const DASHES = [[], [6, 4], [2, 3], [8, 3, 2, 3]];
  const HEIGHT = 260;
  const charts = [];

  const colour = (name) =>
    getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const palette = ["base", "patched", "mark", "good"];
  const tint = (style) =>
    ({ regression: "bad", failed: "bad", improvement: "good" })[style] || "mark";
  const seconds = (index) => data.times[index];

  function element(name, text, style) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (style) made.className = style;
    return made;
  }

  // Nights on which the lab moved are dotted, those on which the metric changed have its mark.
  function annotate(u, chart) {
    const { ctx, bbox } = u;
    const ratio = devicePixelRatio;
    const vertical = (index, name, dash) => {
      const x = u.valToPos(seconds(index), "x", true);
      if (x < bbox.left || x > bbox.left + bbox.width) return null;
      ctx.strokeStyle = colour(name);
      ctx.setLineDash(dash.map((length) => length * ratio));
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      return x;
    };
    ctx.save();
    ctx.lineWidth = ratio;
    data.nights.forEach((night, index) => {
      if (night.lab.length) vertical(index, "muted", [1, 4]);
    });
    ctx.font = `${13 * ratio}px ${colour("sans") || "sans-serif"}`;
    ctx.textAlign = "center";
    ctx.textBaseline = "bottom";
    for (const change of chart.changes) {
      const x = vertical(change.at, tint(change.style), [4, 3]);
      if (x === null) continue;
      ctx.fillStyle = colour(tint(change.style));
      ctx.fillText(change.mark, x, bbox.top - ratio);
    }
    ctx.restore();
  }

  function options(chart, width) {
    const stroke = () => colour("muted");
    const axis = {
      stroke, grid: { stroke: () => colour("rule"), width: 1 },
      ticks: { stroke: () => colour("rule"), width: 1, size: 4 }, font: "12px sans-serif",
    };
    const series = [{}];
    const bands = [];
    for (const name of ["high", "low"]) {
      series.push({ label: name, stroke: "transparent", width: 0, points: { show: false } });
    }
    bands.push({ series: [1, 2], fill: () => colour("area") });
    series.push({
      label: "level", stroke: () => colour("muted"), width: 1, dash: [3, 3], points: { show: false },
    });
    chart.arms.forEach((arm, number) => {
      const own = () => colour(palette[number % palette.length]);
      series.push({
        label: arm.name, stroke: own, width: 1.5, dash: DASHES[number % DASHES.length],
        spanGaps: false,
        points: { show: data.nights.length <= 90, size: 5, fill: own, stroke: own },
      });
    });
    return {
      width, height: HEIGHT, padding: [18, 36, 0, 0], series, bands,
      scales: { x: { time: true } },
      tzDate: (stamp) => uPlot.tzDate(new Date(stamp * 1e3), "UTC"),
      axes: [{ ...axis, space: 84, incrs: [1, 2, 7, 14, 28, 91, 182, 364].map((n) => n * 86400), values: (u, stamps) => stamps.map(day) }, { ...axis, size: 68 }],
      legend: { show: false },
      cursor: { y: false, drag: { x: true, y: false }, points: { size: 8 } },
      hooks: { draw: [(u) => annotate(u, chart)] },
    };
  }

  const day = (stamp) => new Date(stamp * 1e3).toISOString().slice(0, 10);

  function sample(inner, attributes) {
    const space = "http://www.w3.org/2000/svg";
    const svg = document.createElementNS(space, "svg");
    svg.setAttribute("viewBox", "0 0 26 10");
    svg.setAttribute("aria-hidden", "true");
    const made = document.createElementNS(space, inner);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    svg.append(made);
    return svg;
  }

  // Lines are told apart by their dashes, too.
  function key(chart) {
    const list = element("ul", undefined, "key");
    chart.arms.forEach((arm, number) => {
      const line = sample("path", {
        d: "M0 5H26", stroke: `var(--${palette[number % palette.length]})`,
        "stroke-dasharray": DASHES[number % DASHES.length].join(" ") || "none",
      });
      const entry = element("li");
      entry.append(line, arm.role === "pinned" && arm.name !== "pinned" ? `${arm.name} (pinned)` : arm.name);
      list.append(entry);
    });
    const band = element("li");
    band.append(sample("rect", { width: "26", height: "10" }), `band around the level of ${chart.arms[0].name}`);
    list.append(band);
    return list;
  }

  function tell(said, chart, index) {
    said.replaceChildren();
    if (index === null || index === undefined) {
      said.append(element("span", "Point at a night, or use the arrow keys."));
      return;
    }
    const night = data.nights[index];
    const link = element("a", night.night);
    link.href = `../night/${encodeURIComponent(night.id)}.html`;
    said.append(link);
    chart.arms.forEach((arm) => {
      if (arm.values[index] === null && !arm.shown[index]) return;
      said.append("; ", element("b", arm.name), ` ${arm.shown[index]}`);
      if (arm.values[index] !== null && chart.arms.length === 1) said.append(` ${chart.unit}`);
      if (night.kernels[arm.name]) said.append(`, kernel ${night.kernels[arm.name]}`);
    });
    for (const change of chart.changes) {
      if (change.at === index) said.append("; ", element("b", `${change.mark} ${change.word}`), ` ${change.text}`);
    }
    for (const line of night.lab) said.append(`; lab: ${line}`);
  }

  function keys(event, u, holder, state) {
    const last = data.nights.length - 1;
    const moves = { ArrowLeft: -1, ArrowRight: 1, PageUp: -7, PageDown: 7 };
    let next = null;
    if (event.key in moves) next = (state.index ?? last - moves[event.key]) + moves[event.key];
    if (event.key === "Home") next = 0;
    if (event.key === "End") next = last;
    if (event.key === "Enter" && state.index !== null) {
      location.href = `../night/${encodeURIComponent(data.nights[state.index].id)}.html`;
      return;
    }
    if (next === null) return;
    event.preventDefault();
    state.index = Math.min(Math.max(next, 0), last);
    const left = u.valToPos(seconds(state.index), "x");
    u.setCursor({ left, top: HEIGHT / 2 });
    tell(holder.said, holder.chart, state.index);
  }

  function draw(place) {
    if (place.dataset.drawn) return;
    place.dataset.drawn = "yes";
    const chart = data.charts[Number(place.dataset.chart)];
    const said = document.getElementById(place.getAttribute("aria-describedby"));
    const columns = [data.times, chart.high, chart.low, chart.level, ...chart.arms.map((arm) => arm.values)];
    const state = { index: null };
    const settings = options(chart, place.clientWidth || 600);
    settings.hooks.setCursor = [(u) => {
      if (u.cursor.idx === null || u.cursor.idx === undefined || u.cursor.left < 0) return;
      if (u.cursor.idx === state.index) return;
      state.index = u.cursor.idx;
      tell(said, chart, state.index);
    }];
    place.before(key(chart));
    const u = new uPlot(settings, columns, place);
    tell(said, chart, null);
    place.addEventListener("keydown", (event) => keys(event, u, { said, chart }, state));
    charts.push({ u, place });
  }

  function show(nights) {
    const last = data.times[data.times.length - 1];
    const first = data.times[nights ? Math.max(0, data.times.length - nights) : 0];
    const room = Math.max((last - first) * 0.02, 43200);
    for (const { u } of charts) u.setScale("x", { min: first - room, max: last + room });
  }

  let range = 0;
  for (const button of document.querySelectorAll("[data-nights]")) {
    button.addEventListener("click", () => {
      range = Number(button.dataset.nights);
      for (const other of document.querySelectorAll("[data-nights]")) {
        other.setAttribute("aria-pressed", String(other === button));
      }
      show(range);
    });
  }
  const places = [...document.querySelectorAll(".chart")];
  places.filter((place) => !place.closest("details.more")).forEach(draw);
  for (const more of document.querySelectorAll("details.more")) {
    more.addEventListener("toggle", () => {
      if (!more.open) return;
      more.querySelectorAll(".chart").forEach(draw);
      show(range);
    });
  }
  show(range);
  addEventListener("resize", () => {
    for (const { u, place } of charts) {
      if (place.clientWidth) u.setSize({ width: place.clientWidth, height: HEIGHT });
    }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const { u } of charts) u.redraw(false, true);
  });
})();
