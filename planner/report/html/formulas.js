// Writes arguments of a helper in full, of which some are what they add to the one before: ['8*B', '&4*B-2'] are 8·B and 12·B - 2.
function inFull(sizes) {
  let terms = new Map();
  return sizes.map(size => {
    if (size[0] !== '&') terms = new Map();
    for (const term of size.replace('&', '').match(/[+-]?[^+-]+/g)) {
      const [, sign, multiple, product] = /^([+-]?)(\d*)\*?(.*)$/.exec(term);
      terms.set(product, (terms.get(product) || 0n) + BigInt(`${sign === '-' ? '-' : ''}${multiple || 1}`));
    }
    const parts = [...terms].filter(([, multiple]) => multiple).map(([product, multiple]) => {
      const amount = multiple < 0n ? -multiple : multiple;
      return (multiple < 0n ? '-' : '+') + (!product ? amount : amount === 1n ? product : `${amount}*${product}`);
    });
    return parts.join('').replace(/^\+/, '') || '0';
  });
}

const superscript = power => [...power].map(digit => '⁰¹²³⁴⁵⁶⁷⁸⁹'[digit]).join('');
const MARKS = { ceil_div: ['⌈', ' / ', '⌉'], floor_divide: ['⌊', ' / ', '⌋'] };
// Writes an expression for people, with `name` of each symbol.
function written(text, helpers, name) {
  return text.replace(/(?!^)([+-])/g, ' $1 ').replace(/(@\d+|[A-Za-z_][\w.]*)(?:\^(\d+))?/g, (_, base, power) => {
    const [helper, ...sizes] = base[0] === '@' ? helpers[base.slice(1)] : [];
    const [open, between, close] = MARKS[helper] || [`${helper}(`, ', ', ')'];
    const shown = helper ? open + inFull(sizes).map(size => written(size, helpers, name)).join(between) + close : name(base);
    return shown + (power ? superscript(power) : '');
  }).replaceAll('*', '·');
}
