// Runs before the first paint, from a file of its own: the policy of the page allows no inline script.
try {
  const chosen = localStorage.getItem("hawser.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset["theme"] = chosen;
} catch {
  // Storage may be switched off; then the theme is that of the system.
}
