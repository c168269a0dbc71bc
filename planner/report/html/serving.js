// Serving: figures of requests that run at once, and how many fit beside the length of their context.

// Returns what a number of requests needs: `free` bytes of the device, or `most` requests that an engine's cache holds; and whether it fits.
function servedWith(served, sizes, evaluate, inputs) {
  const of = evaluate(inputs), value = name => { const found = served.figures.find(([own]) => own === name); return found && of(sizes[found[3]]); };
  if (!served.guards.every(guard => holds(guard, of))) return null;
  const free = value('serving_free_bytes'), most = value('serving_requests');
  const figures = served.figures.map(([name, unit, meaning, size]) => [name, unit, meaning, of(sizes[size])]);
  return { figures, free, most, fits: most === undefined ? free >= 0n : most >= inputs.users };
}

// Draws the most users that fit over the tokens of a prompt; points of [tokens, users]; the chosen point is filled.
function usersDrawn(points, chosen) {
  const wide = 460, height = 250, left = 74, last = points.at(-1)[0], most = Math.max(chosen[1], ...points.map(([, users]) => users), 1);
  const svg = drawn('svg', { viewBox: `0 0 ${wide} ${height}`, role: 'img' }), power = Math.ceil(Math.log10(most + 1));
  drawn('title', {}, svg, 'Users that fit at once over the tokens of a prompt; logarithmic; the table below has the values');
  const x = tokens => left + (tokens / last) * (wide - left - 8), y = users => height - 24 - (Math.log10(users + 1) / power) * (height - 48);
  for (let exponent = 0; exponent <= power; exponent += 1) {
    const at = y(10 ** exponent);
    drawn('path', { d: `M${left},${at}H${wide}` }, svg);
    drawn('text', { x: left - 6, y: at + 4, 'text-anchor': 'end' }, svg, exactly(10 ** exponent));
  }
  drawn('polyline', { points: points.map(([tokens, users]) => `${x(tokens)},${y(users)}`).join(' '), class: 'line' }, svg);
  drawn('circle', { cx: x(Math.min(chosen[0], last)), cy: y(chosen[1]), class: 'dot' }, svg);
  drawn('text', { x: left, y: 14, class: 'name' }, svg, 'users that fit; below the line, all fit');
  drawn('text', { x: wide - 8, y: height - 6, 'text-anchor': 'end' }, svg, `prompt of ${exactly(last)} tokens`);
  return svg;
}

// Shows whether requests fit a device, their figures, and how many fit beside the length of their prompts.
function servingShown(served, requests, solve, device, at) {
  const own = solve({}), line = at('.serving .verdict');
  line.className = `verdict ${own && own.fits ? 'fits' : 'exceeds'}`;
  at('.served').replaceChildren();
  at('.requests').replaceChildren();
  at('[data-at=users]').textContent = '';
  if (!own) { line.textContent = 'These sizes call for other kernels than the formulas of this page have. The command plans them.'; return; }
  const of = own.free === undefined ? `the cache of ${served.about} on ${device}` : device, users = `${exactly(requests.users)} users`;
  const by = own.free === undefined ? `, which holds ${exactly(own.most)} at once` : own.fits ? ` with ${inBytes(own.free)} free` : ` by ${inBytes(-own.free)}`;
  line.textContent = `${own.fits ? `✓ ${users} fit` : `✕ ${users} exceed`} ${of}${by}`;
  const table = element('table', '', at('.served'));
  element('caption', `As ${served.about} runs it`, table);
  for (const [name, unit, meaning, value] of own.figures) {
    const row = element('tr', '', table), head = element('th', meaning, row);
    head.title = name;
    head.scope = 'row';
    element('td', exactly(value), row);
    element('td', rounded(value, unit), row);
  }
  const fitting = prompt => {
    const fits = users => { const one = solve({ users, prompt }); return one !== null && one.fits; };
    return own.most !== undefined ? solve({ prompt })?.most ?? 0n : fits(1n) ? largestThat(fits, 1n, 1n << 30n) : 0n;
  };
  const points = [];
  for (let step = 1n; step <= 24n; step += 1n) {
    const prompt = (4n * requests.prompt * step) / 24n || 1n;
    if (!points.length || points.at(-1)[0] < Number(prompt)) points.push([Number(prompt), Number(fitting(prompt))]);
  }
  at('[data-at=users]').textContent = `With prompts of ${exactly(requests.prompt)} tokens and outputs of ${exactly(requests.output)}, ${exactly(fitting(requests.prompt))} users fit ${of}.`;
  at('.requests').replaceChildren(usersDrawn(points, [Number(requests.prompt), Number(requests.users)]));
  const details = element('details', '', at('.requests'));
  element('summary', 'As a table', details);
  const listed = element('table', '', details);
  element('caption', 'Users that fit at once, by tokens of a prompt', listed);
  for (const [tokens, most] of points) { const row = element('tr', '', listed); element('th', exactly(tokens), row); element('td', exactly(most), row); }
}
