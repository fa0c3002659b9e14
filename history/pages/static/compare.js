// Any two nights of a track, side by side.  Texts of the data go into the page as text alone.
(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const [first, second] = ["first", "second"].map((name) => document.getElementById(name));
  const place = document.getElementById("compared");
  const MOST_MOVED = 15;

  function element(name, text, style) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (style) made.className = style;
    return made;
  }

  const minus = (text) => text.replace("-", "\u2212");
  const figure = (value) => value === null || value === undefined ? "\u2013"
    : minus(value === 0 ? "0"
      : value.toFixed(Math.min(9, Math.max(0, 5 - Math.floor(Math.log10(Math.abs(value)))))));
  const percent = (fraction) => {
    if (fraction === null) return "\u2013";
    if (fraction === 0) return "0 %";
    const text = (100 * fraction).toFixed(2);
    return minus(`${fraction > 0 && Number(text) !== 0 ? "+" : ""}${text} %`);
  };

  // Mean of the logarithms' differences, seed by seed, with Student's interval.
  function paired(before, after, case_) {
    const [a, b] = [before, after].map((night) =>
      new Map((night.seeds[case_] || []).map((seed, at) => [seed, night.values[at]])));
    const apart = [];
    for (const [seed, value] of a) {
      const other = b.get(seed);
      if (value > 0 && other > 0) apart.push(Math.log(other / value));
    }
    if (!apart.length) return null;
    const mean = apart.reduce((sum, x) => sum + x, 0) / apart.length;
    const up = apart.filter((x) => x > 0).length;
    const down = apart.filter((x) => x < 0).length;
    const quantile = data.quantiles[apart.length];
    if (!quantile) return { mean: Math.expm1(mean), up, down };
    const spread = Math.sqrt(apart.reduce((sum, x) => sum + (x - mean) ** 2, 0) / (apart.length - 1));
    const half = quantile * spread / Math.sqrt(apart.length);
    return {
      mean: Math.expm1(mean), low: Math.expm1(mean - half), high: Math.expm1(mean + half), up, down,
    };
  }

  function row(before, after, key) {
    const [case_, name, arm] = key.split("\n");
    const metric = data.metrics[`${case_}\n${name}`];
    const [a, b] = [before.values[key] || [null, []], after.values[key] || [null, []]];
    const pair = paired({ seeds: before.seeds, values: a[1] }, { seeds: after.seeds, values: b[1] }, case_);
    const change = pair ? pair.mean : a[0] && b[0] !== null ? b[0] / a[0] - 1 : null;
    const made = element("tr");
    if (metric.primary) made.className = "primary";
    const head = element("th", `${case_} ${name}`, "left");
    head.scope = "row";
    made.append(head, element("td", arm, "left"), element("td", figure(a[0])), element("td", figure(b[0])));
    const beyond = pair && pair.low !== undefined && (pair.low > 0 || pair.high < 0);
    const better = (change > 0) === (metric.direction === "higher");
    const cell = element("td", percent(change), beyond ? (better ? "better" : "worse") : "");
    made.append(cell);
    made.append(element("td", pair && pair.low !== undefined
      ? `[${percent(pair.low)}, ${percent(pair.high)}]` : "\u2013"));
    made.append(element("td", pair ? `${pair.up} up, ${pair.down} down` : "\u2013"));
    made.append(element("td", beyond ? (better ? "\u25b2 better" : "\u25bc worse") : "", "left"));
    return made;
  }

  function table(label, heads, rows) {
    const box = element("div", undefined, "scroll");
    box.tabIndex = 0;
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", label);
    const made = element("table");
    const top = element("tr");
    for (const [text, style] of heads) {
      const cell = element("th", text, style);
      cell.scope = "col";
      top.append(cell);
    }
    made.createTHead().append(top);
    made.createTBody().append(...rows);
    box.append(made);
    return box;
  }

  function moved(before, after) {
    const made = [];
    for (const b of after.functions) {
      const a = before.functions.find((one) => one.of === b.of && one.unit === b.unit);
      if (!a) continue;
      const [x, y] = [a, b].map((one) => new Map(one.rows.map((each) => [each[0], each])));
      const rows = [...new Set([...x.keys(), ...y.keys()])]
        .filter((name) => x.has(name) && y.has(name))
        .map((name) => {
          const [[, p, e], [, q, f]] = [x.get(name), y.get(name)];
          return [name, p, q, q - p, 2 * Math.hypot(e, f)];
        })
        // Two standard errors: less is the scatter of the seeds.
        .filter((each) => each[3] !== 0 && Math.abs(each[3]) > each[4])
        .sort((p, q) => Math.abs(q[3]) - Math.abs(p[3]))
        .slice(0, MOST_MOVED)
        .map(([name, p, q, difference]) => {
          const [function_, file] = data.names[name].split("\n");
          const one = element("tr");
          const head = element("th", undefined, "left");
          head.scope = "row";
          head.append(element("code", function_));
          one.append(head, element("td", file, "left"), element("td", figure(p)), element("td", figure(q)));
          one.append(element("td", minus(`${difference > 0 ? "+" : ""}${difference.toFixed(1)}`)));
          return one;
        });
      if (!rows.length) continue;
      made.push(element("h3", `${b.of}: instructions per ${b.unit}, ${figure(a.total)} to ${figure(b.total)}`));
      made.push(table(`Functions of ${b.of}`, [["function", "left"], ["file", "left"], ["from", ""],
        ["to", ""], ["difference", ""]], rows));
    }
    return made;
  }

  function lines(before, after) {
    const made = element("ul", undefined, "plain");
    for (const arm of new Set([...Object.keys(before.kernels), ...Object.keys(after.kernels)])) {
      const [a, b] = [before.kernels[arm] || "none", after.kernels[arm] || "none"];
      made.append(element("li", `${arm}: ${a === b ? a : `${a} \u2192 ${b}`}`));
    }
    const [a, b] = [new Set(before.setting), new Set(after.setting)];
    for (const one of before.setting) if (!b.has(one)) made.append(element("li", `lab before: ${data.settings[one]}`));
    for (const one of after.setting) if (!a.has(one)) made.append(element("li", `lab after: ${data.settings[one]}`));
    return made;
  }

  function compare() {
    const [before, after] = [data.nights[first.value], data.nights[second.value]];
    const keys = [...new Set([...Object.keys(after.values), ...Object.keys(before.values)])];
    const primary = (key) => data.metrics[key.split("\n").slice(0, 2).join("\n")].primary;
    keys.sort((p, q) => Number(primary(q)) - Number(primary(p)));
    place.replaceChildren(lines(before, after));
    place.append(table("Metrics of both nights", [["metric", "left"], ["arm", "left"], [before.night, ""],
      [after.night, ""], ["change", ""], ["interval", ""], ["seeds", ""], ["", "left"]],
      keys.map((key) => row(before, after, key))));
    const functions = moved(before, after);
    if (functions.length) place.append(element("h2", "Functions that moved"), ...functions);
    else place.append(element("p", "No function moved by more than its seeds scatter, as far as functions are kept.", "small"));
    history.replaceState(null, "", `#${before.id},${after.id}`);
  }

  for (const select of [first, second]) {
    data.nights.forEach((night, at) => {
      const option = element("option", `${night.night}  ${Object.values(night.kernels).pop() || ""}`);
      option.value = String(at);
      select.append(option);
    });
    select.addEventListener("change", compare);
  }
  const asked = location.hash.slice(1).split(",").map((id) => data.nights.findIndex((night) => night.id === id));
  first.value = String(asked[0] >= 0 ? asked[0] : Math.max(0, data.nights.length - 2));
  second.value = String(asked[1] >= 0 ? asked[1] : data.nights.length - 1);
  document.getElementById("swap").addEventListener("click", () => {
    [first.value, second.value] = [second.value, first.value];
    compare();
  });
  compare();
})();
