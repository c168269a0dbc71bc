// Memory by part: the moments of a step, what is allocated at the peak, and curves of the peak. Amounts are exact; only pictures are not.
const SVG = 'http://www.w3.org/2000/svg';
function drawn(tag, attributes, into, content) {
  const made = document.createElementNS(SVG, tag);
  for (const name in attributes) made.setAttribute(name, attributes[name]);
  if (content !== undefined) made.textContent = content;
  if (into) into.append(made);
  return made;
}

const DRAWN = 4000; // moments
// Returns the moments of a step, of every copy of equal layers: the phase, the operator, and the bytes of each part.
function momentsOf(model, chosen, of) {
  const key = chosen.slice(0, 2).join(' '), names = model.parts.flat();
  if (!model.moments[key]) return null;
  const value = number => of(model.sizes[number]);
  const amounts = (listed, from) => {
    const made = names.map(() => 0n);
    for (let at = from; at < listed.length; at += 2) made[listed[at]] += value(listed[at + 1]);
    return made;
  };
  const plus = (some, others, times = 1n) => some.map((amount, part) => amount + times * others[part]);
  const around = model.throughout[chosen.join(' ')], throughout = amounts(around, 1), recorded = model.moments[key];
  const moment = listed => ({ phase: listed[0], operator: model.operators[listed[1]], parts: plus(amounts(listed, 2), throughout) });
  const moments = [], stretches = new Map(model.stretches[key].map(stretch => [stretch[0], stretch]));
  for (let at = 0; at < recorded.length;) {
    const [, samples, number] = stretches.get(at) || [];
    if (!samples) { moments.push(moment(recorded[at])); at += 1; continue; }
    const count = value(number), left = amounts(stretches.get(at), 3), first = recorded.slice(at, at + samples).map(moment);
    const stride = BigInt(Math.ceil((Number(count) * samples) / DRAWN)); // of very many layers, only some are drawn
    for (let copy = 0n; copy < count - 1n || copy === 0n; copy += stride) {
      for (const one of first) moments.push({ ...one, parts: plus(one.parts, left, copy) });
    }
    if (count > 1n) moments.push(...recorded.slice(at + samples, at + 2 * samples).map(moment));
    at += 2 * samples;
  }
  const update = plus(amounts(model.after[key], 0), throughout);
  update[names.indexOf('kernels and update')] += value(around[0]);
  moments.push({ phase: model.phases.indexOf('optimizer'), operator: `${chosen[2]} step`, parts: update });
  for (const one of moments) one.total = one.parts.reduce((sum, amount) => sum + amount, 0n);
  return moments;
}

const highest = moments => moments.reduce((top, one) => (one.total > top.total ? one : top));

// Rounds a scale up to a few even steps of GiB, MiB or KiB.
function scaleOf(most) {
  const units = ['B', 'KiB', 'MiB', 'GiB'], power = Math.max(0, Math.min(3, Math.floor(Math.log2(most) / 10))), unit = 1024 ** power;
  const raw = most / unit / 4, base = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 2.5, 5, 10].find(one => one * base >= raw) * base;
  const top = Math.ceil(most / unit / step);
  return { top: top * step * unit, ticks: Array.from({ length: top + 1 }, (_, at) => [at * step * unit, `${+(at * step).toFixed(3)} ${units[power]}`]) };
}

// Returns the largest size for which `fits` holds, from one that does, doubling up to `most`.
function largestThat(fits, from, most) {
  let low = from, high = from * 2n;
  while (high <= most && fits(high)) { low = high; high *= 2n; }
  if (high > most) high = most + 1n;
  while (high - low > 1n) {
    const middle = (low + high) / 2n;
    if (fits(middle)) low = middle; else high = middle;
  }
  return low;
}

function frame(width, height, left, top, title) {
  const svg = drawn('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img' });
  drawn('title', {}, svg, title);
  const scale = scaleOf(top), y = bytes => height - 24 - (bytes / scale.top) * (height - 48);
  for (const [bytes, label] of scale.ticks) {
    drawn('path', { d: `M${left},${y(bytes)}H${width}` }, svg);
    drawn('text', { x: left - 6, y: y(bytes) + 4, 'text-anchor': 'end' }, svg, label);
  }
  return { svg, y };
}

function limitLine(svg, left, width, y, most, name) {
  drawn('path', { d: `M${left},${y(most)}H${width}`, class: 'limit' }, svg);
  drawn('text', { x: left + 6, y: y(most) - 5, class: 'name' }, svg, name);
}

// Draws the bytes of each part over the operators; `show` is called with the moment under the pointer.
function timeline(model, moments, device, memory, show) {
  const wide = 960, height = 320, left = 74, most = Number(highest(moments).total), columns = Math.min(moments.length, wide - left);
  const { svg, y } = frame(wide, height, left, Math.max(most, memory < 1.6 * most ? memory : 0), 'Allocated memory over the operators of a step');
  const shown = Array.from({ length: columns }, (_, column) => { // the highest of each column, so that no peak is lost
    const from = Math.floor((column * moments.length) / columns), end = Math.floor(((column + 1) * moments.length) / columns);
    return highest(moments.slice(from, Math.max(end, from + 1)));
  });
  shown[columns - 1] = moments.at(-1); // the optimizer's, which a higher one would hide
  const x = column => left + (column * (wide - left)) / columns, below = shown.map(() => 0);
  model.parts.flat().forEach((_, part) => {
    if (!shown.some(one => one.parts[part])) return;
    const floor = shown.map((_, column) => `${x(column + 1)},${y(below[column])} ${x(column)},${y(below[column])}`).reverse();
    shown.forEach((one, column) => { below[column] += Number(one.parts[part]); });
    const roof = shown.map((_, column) => `${x(column)},${y(below[column])} ${x(column + 1)},${y(below[column])}`);
    drawn('polygon', { points: [...roof, ...floor].join(' '), class: `area a${part}` }, svg);
  });
  let last = -1;
  shown.forEach((one, column) => {
    if (one.phase <= last) return;
    last = one.phase;
    const late = x(column) > wide - 70;
    drawn('path', { d: `M${x(column)},14V${height - 24}` }, svg);
    drawn('text', { x: x(column) + (late ? -4 : 4), y: last % 2 ? 22 : 10, ...(late && { 'text-anchor': 'end' }) }, svg, model.phases[last]);
  });
  if (memory < 1.6 * most) limitLine(svg, left, wide, y, memory, device);
  drawn('text', { x: wide, y: height - 6, 'text-anchor': 'end' }, svg, 'operators, in order →');
  const cursor = drawn('path', { class: 'cursor' }, svg);
  let column = shown.indexOf(highest(shown));
  const point = at => {
    column = Math.max(0, Math.min(columns - 1, at));
    cursor.setAttribute('d', `M${x(column + 0.5)},24V${height - 24}`);
    show(shown[column]);
  };
  svg.setAttribute('tabindex', '0');
  svg.onpointermove = event => {
    const box = svg.getBoundingClientRect();
    point(Math.floor((((event.clientX - box.left) / box.width) * wide - left) / ((wide - left) / columns)));
  };
  svg.onkeydown = event => {
    const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -25, PageDown: 25, Home: -columns, End: columns }[event.key];
    if (by) { event.preventDefault(); point(column + by); }
  };
  point(column);
  return svg;
}

// Draws the peak over a size: points of [size, bytes], the chosen one, the largest that fits (or none), and the device's line.
function curve(name, points, chosen, largest, device, memory) {
  const wide = 460, height = 250, left = 74, last = points.at(-1)[0], most = Math.max(...points.map(([, bytes]) => bytes));
  const { svg, y } = frame(wide, height, left, Math.max(most, memory < 1.6 * most ? memory : 0), `Peak memory over ${name}`);
  const x = size => left + (size / last) * (wide - left - 8);
  drawn('polyline', { points: points.map(([size, bytes]) => `${x(size)},${y(bytes)}`).join(' '), class: 'line' }, svg);
  if (memory < 1.6 * most) limitLine(svg, left, wide, y, memory, device);
  for (const [point, css] of [[largest, 'ring'], [chosen, 'dot']]) {
    if (!point || point[0] > last) continue;
    const late = x(point[0]) > wide - 130;
    drawn('circle', { cx: x(point[0]), cy: y(point[1]), class: css }, svg);
    if (css === 'ring') drawn('text', { x: x(point[0]) + (late ? -9 : 9), y: y(point[1]) + 18, class: 'name', ...(late && { 'text-anchor': 'end' }) }, svg, `largest that fits: ${exactly(point[0])}`);
  }
  drawn('text', { x: left, y: height - 6 }, svg, '0');
  drawn('text', { x: wide - 8, y: height - 6, 'text-anchor': 'end' }, svg, `${name} = ${exactly(last)}`);
  return svg;
}
