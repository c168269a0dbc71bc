// Parts of a whole: nested areas of parameters, bars of FLOPs. Each has its values in a table.
function element(tag, content, into) {
  const made = document.createElement(tag);
  made.textContent = content;
  if (into) into.append(made);
  return made;
}

const flexOf = (part, whole) => `${Number((part * 100000n) / (whole || 1n))} 0 0`;
const permille = (part, whole) => Number((part * 1000n) / (whole || 1n));

// Draws groups, [class, name, parts], largest first, over their parts, [name, size].
function nested(groups) {
  const box = element('div', ''), sum = parts => parts.reduce((whole, [, size]) => whole + size, 0n);
  const sized = groups.map(([css, name, parts]) => [css, name, parts.filter(([, size]) => size), sum(parts)]).filter(([, , , size]) => size);
  const whole = sized.reduce((all, [, , , size]) => all + size, 0n), larger = ([a], [b]) => (a < b ? 1 : -1);
  const area = (css, name, size, into) => {
    const made = element('i', '', into);
    made.className = css;
    made.style.flex = flexOf(size, whole);
    made.title = `${name}: ${inCounts(size)}`;
    if (permille(size, whole) > 90) { element('b', name, made); element('span', inCounts(size), made); }
  };
  box.className = 'areas';
  box.setAttribute('role', 'img');
  box.ariaLabel = `${inCounts(whole)} parameters by component and weight; the table below has the values`;
  for (const [, [css, name, parts, size]] of sized.map(one => [one[3], one]).sort(larger)) {
    const column = element('div', '', box), inner = element('div', '');
    column.style.flex = flexOf(size, whole);
    area(css, name, size, column);
    column.append(inner);
    for (const [, part] of parts.map(one => [one[1], one]).sort(larger)) area(css, ...part, inner);
  }
  return box;
}
